// Receive the views, and report whether they are current.

const LONGEST_SILENCE_MS = 10000;
const RETRY_MS = 1000;

// Calls onView(name, content) for each view, and onConnection(isConnected) for each change of that.
export function follow(onView, onConnection) {
  let source = null;
  let heard = 0;
  const open = () => {
    source?.close();
    heard = Date.now();
    source = new EventSource("events");
    source.onopen = () => onConnection(true);
    source.onerror = () => {
      onConnection(false);
      // After some errors a browser does not retry by itself.
      if (source.readyState === EventSource.CLOSED) setTimeout(open, RETRY_MS);
    };
    for (const name of ["state", "resources", "queue", "schedules", "runs", "loops", "alive"]) {
      source.addEventListener(name, (event) => {
        heard = Date.now();
        if (name !== "alive") onView(name, JSON.parse(event.data));
      });
    }
  };
  open();
  setInterval(() => {
    if (Date.now() - heard > LONGEST_SILENCE_MS) {
      onConnection(false);
      open();
    }
  }, RETRY_MS);
}

// Reads a run or a resource; throws an Error with the server's message.
export async function read(path) {
  const answer = await fetch(path);
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.message);
  return content;
}
