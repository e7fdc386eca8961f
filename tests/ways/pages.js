// What holds for every page of the offline copy. Each check returns the faults that it sees, one line each.

const all = (selector) => [...document.querySelectorAll(selector)];
const start = (text) => text.trim().slice(0, 60);

function facts() {
  return {
    links: all("a[href]").map((link) => link.href),
    anchors: all("[id]").map((part) => part.id),
    words: all("img").map((image) => image.alt),
    folds: all("details.hide").length,
    formulas: all("math").length,
    contents: all(".toc-tree li li a").length,      // below the title
    headings: all("h2, h3, h4").length,
  };
}

function leaks() {
  return all("details:not([open]) img").filter((image) => image.checkVisibility())
    .map((image) => `shown before it is opened: ${start(image.alt)}`);
}

function pictures() {
  return all("img").flatMap((image) => [
    ...(image.naturalWidth ? [] : [`picture does not load: ${image.src.slice(-60)}`]),
    ...(image.alt.length > 20 && !image.alt.endsWith(".png") ? [] : [`picture says only '${image.alt}': ${image.src.slice(-60)}`]),
  ]);
}

function outline() {
  const levels = all("h1, h2, h3, h4, h5, h6").map((heading) => Number(heading.tagName[1]));
  const gaps = levels.filter((level, i) => level > (levels[i - 1] ?? 0) + 1);
  return [
    ...(levels.filter((level) => level === 1).length === 1 ? [] : [`not one h1: headings ${levels}`]),
    ...(gaps.length ? [`headings skip a level: ${levels}`] : []),
    ...(document.documentElement.lang === "en" ? [] : ["no lang=en"]),
    ...(document.title.length > 10 ? [] : ["no title"]),
  ];
}

function ghosts() {     // what a widget leaves behind, and formulas that nobody typeset
  return all(".cell_output").map((output) => output.textContent.match(/\b\w*(Slider|Box|Dropdown|HTML)\(/))
    .filter(Boolean).map((match) => `widget ghost: ${match[0]}`)
    .concat(all("article p, article li, article td, summary").filter((part) => part.textContent.includes("$"))
      .map((part) => `raw formula: ${start(part.textContent)}`));
}

function width() {      // code and tables may scroll in their own boxes, the page may not
  const wide = all("html, .content").filter((box) => box.scrollWidth > box.clientWidth + 1);
  const cut = all("article p, article li, summary").filter((part) => part.checkVisibility() && !part.closest("table")
    && part.getBoundingClientRect().right > innerWidth + 1);
  return wide.map((box) => `scrolls sideways: ${box.tagName} ${box.scrollWidth} > ${box.clientWidth}`)
    .concat(cut.map((part) => `cut at the right: ${start(part.textContent)}`));
}

function folds() {      // each opens by a click and shows what it holds
  return all("details").filter((fold) => {
    if (!fold.open) fold.querySelector("summary").click();
    return !fold.open || !fold.lastElementChild.checkVisibility() || !fold.lastElementChild.offsetHeight;
  }).map((fold) => `does not unfold: ${start(fold.textContent)}`);
}

function rgba(colour) {
  const numbers = colour.match(/^rgba?\(([^)]*)\)$/)[1].split(/[ ,/]+/).map(Number);
  return numbers.length === 4 ? numbers : [...numbers, 1];
}

function over([r, g, b, alpha], [R, G, B]) {
  return [r * alpha + R * (1 - alpha), g * alpha + G * (1 - alpha), b * alpha + B * (1 - alpha), 1];
}

function background(element) {
  const layers = [];
  for (let up = element; up; up = up.parentElement) layers.unshift(rgba(getComputedStyle(up).backgroundColor));
  return layers.reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
}

function luminance(colour) {        // as WCAG 2 defines it
  const [r, g, b] = colour.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast() {
  const faults = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const style = getComputedStyle(element), below = background(element);
    const [low, high] = [over(rgba(style.color), below), below].map(luminance).sort((a, b) => a - b);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5))
      faults.add(`contrast ${ratio.toFixed(1)}: ${element.tagName}.${element.className} ${style.color}`);
  }
  return [...faults];
}

function paper() {      // to be asked while the page is laid out for print, as wide as a sheet
  const shown = (selector) => all(selector).filter((part) => part.checkVisibility());
  return [
    ...shown(".sidebar-drawer, .toc-drawer, .mobile-header, .bottom-of-page").map((part) => `printed: ${part.className}`),
    ...shown("pre").filter((code) => code.scrollWidth > code.clientWidth + 1).map((code) => `cut: ${start(code.textContent)}`),
    ...all(".cell_output img").filter((image) => !image.checkVisibility()).map(() => "a picture is missing on paper"),
    ...shown("img").filter((image) => getComputedStyle(image).breakInside !== "avoid").map(() => "a picture may be split"),
  ];
}
