// SPDX-License-Identifier: Apache-2.0
// Says to the style sheet that the page was opened as a file: there the theme's search finds nothing.
if (location.protocol === "file:") {
  document.documentElement.classList.add("from-file");
}
