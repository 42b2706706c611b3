// Ages and durations, as the commands print them.

const UNITS = [
  // Below this many seconds: unit, its seconds, and the unit of the rest.
  [120, "s", 1, "", 0], [600, "m", 60, "s", 1], [10800, "m", 60, "", 0],
  [28800, "h", 3600, "m", 60], [172800, "h", 3600, "", 0], [691200, "d", 86400, "h", 3600],
];

function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [limit, unit, size, small, smallSize] of UNITS) {
    if (whole < limit) {
      const rest = smallSize ? Math.floor((whole % size) / smallSize) : 0;
      return `${Math.floor(whole / size)}${unit}${rest ? rest + small : ""}`;
    }
  }
  return `${Math.floor(whole / 86400)}d`;
}

export const ago = (time) => span((Date.now() - Date.parse(time)) / 1000);
export const until = (time) => `in ${span((Date.parse(time) - Date.now()) / 1000)}`;
export const duration = (seconds) => (seconds === undefined ? "-" : `${seconds.toFixed(1)} s`);
export const plural = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;
export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);
