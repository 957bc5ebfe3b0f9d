// Keeps a page up to date: asks for it again while somebody looks at it, and puts into it what has changed, so that
// focus, selection and scroll stay where they are. Without this file every page works, but stands still, as do pages
// whose main part says so (data-still): what they show was asked for once. What somebody writes into filters stays.
// An answer that cost the agent much says when to ask again (Ask-Again-Ms, broker.console.record_pages).
const EVERY_MS = 2000;
const SLOW_MS = 15000;
const TYPED_MS = 250;

const freshness = document.getElementById("freshness");
let failures = 0;
let every = EVERY_MS;
let timer = 0;
let asking = null;

async function show(url, { isNew = false } = {}) {
  asking?.abort();
  const mine = (asking = new AbortController());
  try {
    const answer = await fetch(url, { signal: mine.signal, headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = page.getElementById("main");
    if (!main) throw new Error(`status ${answer.status}`);
    Idiomorph.morph(document.getElementById("main"), main, {
      ignoreActiveValue: true,
      callbacks: { beforeNodeMorphed: (node) => isNew || !node.matches?.("form.filters") },
    });
    document.title = page.title;
    if (isNew) history.replaceState(null, "", url);
    failures = 0;
    every = Math.max(EVERY_MS, Number(answer.headers.get("Ask-Again-Ms")));
    freshness.textContent = "";
  } catch (error) {
    if (error.name === "AbortError") return;
    failures += 1;
    freshness.textContent = "The agent does not answer; what is shown may be old.";
  }
  if (mine === asking) wait();
}

// Who is about to fill in a form, or to read what does not change, is not disturbed.
function isStill() {
  return "still" in document.getElementById("main").dataset;
}

function wait() {
  clearTimeout(timer);
  if (isStill()) return;
  const pause = Math.max(every, Math.min(EVERY_MS * 2 ** failures, SLOW_MS));
  timer = setTimeout(() => (document.hidden ? wait() : show(location.href)), pause);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !isStill()) show(location.href);
});

document.addEventListener("input", (event) => {
  const form = event.target.closest("form.search");
  if (!form) return;
  clearTimeout(timer);
  timer = setTimeout(() => {
    const query = new URLSearchParams(new FormData(form));
    show(`${location.pathname}?${query}`, { isNew: true });
  }, TYPED_MS);
});

const themes = document.getElementById("theme");
themes.hidden = false;
themes.addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
});

wait();
