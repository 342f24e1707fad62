// Dark or light: as the system says, until the user chooses; the choice is kept.

const KEY = "pool-theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const WORDS = { auto: "as the system", light: "light", dark: "dark" };

function current() {
  const kept = localStorage.getItem(KEY);
  return kept in NEXT ? kept : "auto";
}

function apply(theme, button) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  const label = `Colours: ${WORDS[theme]}. Switch to ${WORDS[NEXT[theme]]}`;
  button.setAttribute("aria-label", label);
  button.title = label;
}

/** Make the button switch; `toggle()` does the same. */
export function prepareTheme(button) {
  apply(current(), button);
  const toggle = () => {
    const theme = NEXT[current()];
    localStorage.setItem(KEY, theme);
    apply(theme, button);
    return WORDS[theme];
  };
  button.addEventListener("click", toggle);
  return toggle;
}
