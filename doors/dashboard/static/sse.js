// Server-sent events from pieces of text: what EventSource would do, if it could send a token. Pure.

const END = /\r\n\r\n|\n\n|\r\r/g;

/** Takes pieces as they arrive; hands out whole messages `{id, event, data}`. */
export class SseParser {
  #pieces = "";
  #looked = 0;

  /** The messages that this piece completes. Comments are none. */
  push(piece) {
    this.#pieces += piece;
    const messages = [];
    let start = 0;
    END.lastIndex = Math.max(0, this.#looked - 3);
    for (let end = END.exec(this.#pieces); end !== null; end = END.exec(this.#pieces)) {
      const message = read(this.#pieces.slice(start, end.index));
      if (message !== null) messages.push(message);
      start = END.lastIndex;
    }
    this.#pieces = this.#pieces.slice(start);
    this.#looked = this.#pieces.length;
    return messages;
  }
}

function read(block) {
  const message = { id: null, event: "message", data: "" };
  const data = [];
  for (const line of block.split(/\r\n|\n|\r/)) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") data.push(value);
    else if (field === "id" || field === "event") message[field] = value;
  }
  message.data = data.join("\n");
  return data.length > 0 ? message : null;
}
