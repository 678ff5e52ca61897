"use strict";
// What is shown, in the part of the address after #: an address shows the same again,
// and Back undoes a zoom.
const flameState = (() => {
  // read returns the values of the address that differ from the usual ones.
  const read = () => new URLSearchParams(location.hash.slice(1));

  // write puts values into the address; empty ones are left out. Only a step that Back
  // undoes is added to the history.
  function write(values, step) {
    const state = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
    if (state === read().toString()) return;
    try {
      history[step ? "pushState" : "replaceState"](null, "", "#" + state);
    } catch {
      // a page without an address, or too many changes in a short time
    }
  }

  // A frame is named by its number in the data.
  const keyOf = (tree, id) => String(tree.shape.frame[tree.node[id]]);

  // pathTo names a node of the tree, and find is the node; 0 if the tree lacks it.
  function pathTo(tree, id) {
    const path = [];
    for (; id > 0; id = tree.parent[id]) path.unshift(keyOf(tree, id));
    return path.join("/");
  }

  function find(tree, path) {
    let at = 0;
    for (const key of path ? path.split("/") : []) {
      let next = 0;
      for (let i = tree.first[at]; i < tree.first[at + 1] && !next; i++) {
        if (keyOf(tree, tree.children[i]) === key) next = tree.children[i];
      }
      if (!next) return 0;
      at = next;
    }
    return at;
  }

  return { read, write, pathTo, find };
})();
