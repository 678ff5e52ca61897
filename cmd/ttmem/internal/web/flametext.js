"use strict";
// Numbers for people, and patterns from them.
const flameText = (() => {
  function formatBytes(n) {
    if (n < 1024) return n + " B";
    let unit = 0;
    for (n /= 1024; n >= 1023.95 && unit < 5; unit++) n /= 1024;
    return n.toFixed(1) + " " + "KMGTPE"[unit] + "iB";
  }
  const formatCount = (n) => n.toLocaleString("en-US") + (n === 1 ? " object" : " objects");
  function formatPercent(part, whole) {
    const p = whole > 0 ? (100 * part) / whole : 0;
    return (p === 0 || p >= 9.95 ? p.toFixed(1) : p.toPrecision(2)) + " %";
  }
  // patternOf reads what is searched: null without a text, undefined if it is no pattern.
  function patternOf(text) {
    try {
      // as in many editors: capitals matter where there are any
      return text ? new RegExp(text, text === text.toLowerCase() ? "iu" : "u") : null;
    } catch {
      return undefined;
    }
  }
  return { formatBytes, formatCount, formatPercent, patternOf };
})();
