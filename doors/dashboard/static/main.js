// Puts the page together: signing in, what comes from the supervisor, what is drawn when.

import { Api, keepToken, takeToken } from "./api.js";
import { announce, toast } from "./announcer.js";
import { ApprovalsView } from "./approvals.js";
import { BackgroundView } from "./background.js";
import { ConversationView } from "./conversation.js";
import { confirm, prepareDialog } from "./dialogs.js";
import { byId, setAttribute, setText } from "./dom.js";
import { EventsView } from "./events.js";
import { FiguresView } from "./figures.js";
import { Frames } from "./frames.js";
import { HealthView } from "./health_view.js";
import { HeartbeatsView } from "./heartbeats.js";
import { JobsView } from "./jobs.js";
import { prepareKeys, showHelp } from "./keys.js";
import { Model } from "./model.js";
import { askForPrompt } from "./new_prompt.js";
import { NodesView } from "./nodes.js";
import { ProfilesView } from "./profiles.js";
import { SessionsView } from "./sessions.js";
import { EventStream } from "./stream.js";
import { prepareTheme } from "./theme.js";
import { WorkersView } from "./workers.js";

const STATUS_EVERY = 1_000;
const SESSIONS_EVERY = 15_000;
const HEARTBEATS_EVERY = 10_000;
const PART = "pool-part";
const BACKLOG = 1_000; // events from before the page was opened
const SHARE = 5; // asking may take a fifth of the time at most: a large answer is asked for less often

class Dashboard {
  #api;
  #model = new Model();
  #frames = new Frames();
  #stream;
  #views;
  #app;
  #countdown = null;
  #timers = [];
  #over = false;

  constructor(api) {
    this.#api = api;
    const model = this.#model;
    const app = (this.#app = {
      now: () => this.#now(),
      /** The seq of the last event from before the page was loaded. */
      head: 0,
      mark: (...names) => this.#frames.mark(...names),
      openKey: () => this.#views.conversation.key,
      openSession: (key, options) => this.#views.conversation.open(key, options),
      changeHistory: (work) => this.#views.conversation.change(work),
      showApproval: (key) => this.#views.approvals.focus(key),
      act: (...given) => this.act(...given),
      ask: (...given) => this.ask(...given),
    });
    this.#views = {
      figures: new FiguresView(model, app.now),
      workers: new WorkersView(model, app),
      approvals: new ApprovalsView(model, app),
      sessions: new SessionsView(model, app),
      conversation: new ConversationView(model, app),
      events: new EventsView(model, app),
      background: new BackgroundView(model, app),
      heartbeats: new HeartbeatsView(model, app),
      jobs: new JobsView(model, app),
      health: new HealthView(model, app),
      nodes: new NodesView(model, app),
      profiles: new ProfilesView(model),
    };
    const pace = { figures: 500, workers: 250, sessions: 250, events: 200, background: 250, conversation: 40 };
    for (const [name, view] of Object.entries(this.#views)) this.#frames.add(name, () => view.draw(), pace[name] ?? 0);
  }

  /** Begin with a first status document: it is shown at once, a long list of sessions when it has come. */
  begin(status) {
    this.#model.takeStatus(status, this.#now());
    this.#prepare();
    const part = sessionStorage.getItem(PART);
    if (part !== null) showPart(part);
    this.#frames.mark(...Object.keys(this.#views));
    this.#follow(status.gateway.events.head);
  }

  async #follow(head) {
    this.#app.head = head;
    await this.#syncSessions();
    if (this.#over) return;
    this.#stream = new EventStream({
      open: (since, signal) => this.#api.events(since, signal),
      take: (events) => this.#takeEvents(events),
      tell: (link) => this.#tellLink(link),
      gap: () => this.#tellGap(),
    });
    this.#stream.run(Math.max(0, head - BACKLOG));
    this.#every(STATUS_EVERY, () => this.#syncStatus());
    this.#every(SESSIONS_EVERY, () => this.#syncSessions());
    this.#every(HEARTBEATS_EVERY, () => this.#syncAutonomy());
    this.#syncAutonomy();
    this.#views.conversation.reopen();
  }

  /** Ask for something quietly: null where it could not be had. */
  async ask(method, params = {}, patience = undefined) {
    try {
      return await this.#api.call(method, params, patience);
    } catch (error) {
      if (error.status === 401) this.#signOut("The token does not hold any more.");
      return null;
    }
  }

  /** Have something done, and say what came of it; null where it was refused. */
  async act(method, params, done, patience = undefined) {
    try {
      const answer = await this.#api.call(method, params, patience);
      if (done) toast(done);
      this.#syncStatus();
      return answer;
    } catch (error) {
      toast(`${method}: ${error.message}`, "bad");
      return null;
    }
  }

  // --- what comes in ---

  #now() {
    return Date.now() / 1000 + this.#api.skew;
  }

  /** Again and again while the page is looked at, with pauses in proportion to how long the answer takes. */
  #every(pause, work) {
    const again = async () => {
      const begun = performance.now();
      try {
        if (!document.hidden) await work();
      } finally {
        if (!this.#over) this.#timers[slot] = setTimeout(again, Math.max(pause, SHARE * (performance.now() - begun)));
      }
    };
    const slot = this.#timers.length;
    this.#timers.push(setTimeout(again, pause));
  }

  async #syncStatus() {
    const status = await this.ask("status");
    if (status === null) return;
    const heldBack = this.#model.hasStrangers;
    this.#model.takeStatus(status, this.#now());
    this.#frames.mark("figures", "workers", "approvals", "sessions", "conversation", "profiles", "health");
    if (heldBack) await this.#syncSessions();
    this.#views.background.refresh();
    this.#views.nodes.refresh();
  }

  #syncAutonomy() {
    return Promise.all([this.#views.heartbeats.refresh(), this.#views.jobs.refresh(), this.#views.health.refresh()]);
  }

  async #syncSessions() {
    const asked = this.#model.eventCount;
    const views = await this.ask("sessions.list");
    if (views === null) return;
    this.#model.takeSessions(views, asked);
    this.#frames.mark("sessions", "conversation");
  }

  #takeEvents(events) {
    const changed = this.#model.takeEvents(events);
    this.#views.conversation.takeEvents(events);
    if (changed.has("workers")) this.#syncStatusSoon();
    if (changed.has("nodes")) this.#views.nodes.refresh({ now: true });
    if (changed.has("jobs")) this.#views.jobs.refresh();
    if (changed.has("background")) this.#views.background.refresh({ now: true });
    this.#frames.mark(...changed, "figures", "conversation");
  }

  #soon = null;

  /** Workers have come or gone: not a second later, but not for each of them. */
  #syncStatusSoon() {
    this.#soon ??= setTimeout(async () => {
      try {
        await this.#syncStatus();
      } finally {
        this.#soon = null;
      }
    }, 200);
  }

  // --- how the connection stands ---

  #tellLink({ state, wait, status }) {
    clearInterval(this.#countdown);
    const was = byId("link").dataset.state;
    byId("link").dataset.state = state;
    if (state === "live") this.#goLive(was);
    else if (state === "lost") this.#count(performance.now() + wait, was);
    else if (state === "connecting" && was !== "lost") this.#showLink("quiet", "Connecting");
    else if (state === "refused") this.#signOut(status === 403 ? "This token may not look." : "The token does not hold any more.");
  }

  #goLive(was) {
    this.#showLink("good", "Live");
    if (this.#wasLost) {
      announce("Connected again");
      this.#views.conversation.readAgain();
      this.#syncSessions();
    }
    this.#wasLost = false;
    if (was !== "live") this.#syncStatus();
  }

  #wasLost = false;

  #count(until, was) {
    if (!this.#wasLost && was !== undefined) announce("The connection is lost; trying again");
    this.#wasLost = true;
    const tell = () => this.#showLink("bad", `Reconnecting in ${Math.max(0, Math.ceil((until - performance.now()) / 1000))} s`);
    tell();
    this.#countdown = setInterval(tell, 1000);
  }

  #showLink(tone, text) {
    setAttribute(byId("link"), "data-tone", tone);
    setText(byId("link-text"), text);
  }

  #tellGap() {
    this.#model.takeGap();
    this.#views.events.mark("Events from before this point are gone");
    this.#views.conversation.readAgain();
  }

  #signOut(reason) {
    if (this.#over) return;
    this.#over = true;
    this.#stream?.stop();
    for (const timer of this.#timers) clearTimeout(timer);
    sessionStorage.clear();
    sessionStorage.setItem("pool-reason", reason);
    location.reload();
  }

  // --- what people do ---

  #prepare() {
    const toggleTheme = prepareTheme(byId("theme"));
    prepareDialog();
    const { conversation, events, approvals, workers, health } = this.#views;
    byId("pause").addEventListener("click", () => this.#pause());
    byId("drain").addEventListener("click", () => this.#drain());
    byId("help").addEventListener("click", showHelp);
    byId("sign-out").addEventListener("click", () => this.#signOut(""));
    byId("link").addEventListener("click", () => this.#stream?.retry());
    for (const tab of document.querySelectorAll(".tab")) tab.addEventListener("click", () => showPart(tab.dataset.part));
    const go = (part, title) => () => {
      showPart(part);
      byId(title).focus();
    };
    prepareKeys({
      "?": showHelp,
      "/": () => {
        showPart("sessions");
        byId("sessions-filter").focus();
      },
      1: go("pool", "workers-title"),
      2: go("sessions", "sessions-title"),
      3: go("events", "events-title"),
      n: () => askForPrompt(this.#app),
      a: () => approvals.focus(),
      l: () => workers.showLog(),
      h: () => health.open(),
      p: () => events.hold(),
      t: () => announce(`Colours ${toggleTheme()}`),
      Escape: () => conversation.close(),
    });
  }

  async #pause() {
    if (this.#model.status.pool.mode !== "running") {
      await this.act("resume", {}, "The pool gives out workers again");
      return;
    }
    const text = "Turns that run go on; no new one begins until you resume. What comes in waits.";
    if (await confirm("Pause the pool?", text, "Pause")) await this.act("pause", {}, "The pool is paused");
  }

  async #drain() {
    const text = "Nothing new is taken, running turns may end, then all workers are stopped. The supervisor stays; resume undoes it.";
    if (await confirm("Drain the pool?", text, "Drain")) await this.act("drain", {}, "The pool is drained", 3_600_000);
  }
}

/** In a narrow window one part is shown at a time. */
function showPart(part) {
  byId("board").dataset.part = part;
  sessionStorage.setItem(PART, part);
  for (const tab of document.querySelectorAll(".tab")) setAttribute(tab, "aria-pressed", String(tab.dataset.part === part));
}

/** The first status proves the token: before that no view may listen to the page. Throws ApiError. */
async function enter(token) {
  const api = new Api(token);
  const status = await api.call("status");
  new Dashboard(api).begin(status);
  keepToken(token);
  byId("sign-in").hidden = true;
  byId("console").hidden = false;
}

function askForToken(reason) {
  byId("console").hidden = true;
  byId("sign-in").hidden = false;
  setText(byId("token-error"), reason);
  byId("token").focus();
}

async function tryToEnter(token) {
  try {
    await enter(token);
  } catch (error) {
    if (error.status === 401) keepToken("");
    askForToken(error.status === 401 ? "This token is not known here." : error.message);
  }
}

function start() {
  byId("token-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = event.target.querySelector("button");
    button.disabled = true;
    await tryToEnter(byId("token").value.trim());
    button.disabled = false;
  });
  const token = takeToken();
  const reason = sessionStorage.getItem("pool-reason") ?? "";
  sessionStorage.removeItem("pool-reason");
  if (token) tryToEnter(token);
  else askForToken(reason);
}

start();
