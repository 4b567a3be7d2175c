// Filters the cards of a page of the atlas, or the list of all papers' equations. Without it all are shown.
document.addEventListener("DOMContentLoaded", function () {
  "use strict";
  var tools = document.querySelector(".atlas-tools");
  if (!tools) { return; }
  var text = tools.querySelector("input"), state = tools.querySelector("select"), shown = tools.querySelector("span"),
      fold = document.querySelector("details.all-equations"),
      cards = Array.prototype.slice.call(document.querySelectorAll("article.equation, .found li"));
  function filter() {
    var words = text.value.toLowerCase().split(/\s+/).filter(Boolean), count = 0;
    cards.forEach(function (card) {
      var fits = words.every(function (word) { return card.dataset.words.indexOf(word) >= 0; }) &&
                 (!state.value || card.dataset.state === state.value);
      card.hidden = !fits;
      count += fits;
    });
    // a section of the paper with nothing left to show is a heading in the way
    document.querySelectorAll("section > section:has(article.equation)").forEach(function (section) {
      section.hidden = !section.querySelector("article.equation:not([hidden])");
    });
    // the list of all papers is folded until something is looked for
    if (fold) { fold.open = words.length > 0 || Boolean(state.value); }
    shown.textContent = count + " of " + cards.length;
  }
  text.addEventListener("input", filter);
  state.addEventListener("change", filter);
  tools.hidden = false;
  filter();
});

// Of a graph of calls: the lines to and from the equation under the pointer, or with the focus, stand out.
document.addEventListener("DOMContentLoaded", function () {
  "use strict";
  document.querySelectorAll("svg.calls").forEach(function (graph) {
    function light(event) {
      var box = event.target.closest("a[data-id]"), on = /in$|over$/.test(event.type);
      if (!box) { return; }
      graph.querySelectorAll("path").forEach(function (line) {
        var ends = (line.dataset.from + " " + line.dataset.to).split(" ");
        line.classList.toggle("lit", on && ends.indexOf(box.dataset.id) >= 0);
      });
    }
    ["mouseover", "mouseout", "focusin", "focusout"].forEach(function (name) { graph.addEventListener(name, light); });
  });
});
