// What lies in chunks/ beside the page: scripts of one call, chunk(name, gzipped JSON in base64).
const Chunks = (() => {
  "use strict";
  const KEPT = 8; // parts of some two million characters
  const callbacks = new Map();
  const kept = new Map(); // the last used is the last
  globalThis.chunk = (name, packed) => callbacks.get(name)?.(packed);

  async function unpack(packed) {
    if (!globalThis.DecompressionStream) throw new Error("This browser is too old to unpack conversations (it has no DecompressionStream).");
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  function load(name) {
    const script = document.createElement("script");
    return new Promise((resolve, reject) => {
      callbacks.set(name, resolve);
      const missing = () => reject(new Error(`chunks/${name}.js cannot be read; keep the folder chunks beside this page.`));
      script.addEventListener("error", missing);
      script.addEventListener("load", missing); // nothing happens if it has called chunk() before
      script.src = `chunks/${name}.js`;
      document.head.append(script);
    }).finally(() => { callbacks.delete(name); script.remove(); }).then(unpack);
  }

  const named = (kind, number) => load(`${kind}_${String(number).padStart(4, "0")}`);

  // All conversations of one part. One that cannot be read is asked for again the next time.
  function part(number) {
    const found = kept.get(number) || named("chunk", number);
    kept.delete(number);
    kept.set(number, found);
    found.catch(() => kept.delete(number));
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
    return found;
  }

  const numbers = (count) => Array.from({ length: count }, (_, at) => at + 1);

  return {
    part,
    rows: async (lists) => (await Promise.all(numbers(lists).map((number) => named("list", number)))).flat(),
    conversations: (entry) => Promise.all(entry.episodes.map(async (one) => one && (await part(one.at[0]))[one.at[1]])),
  };
})();
