// Package page is what the text pages have in common: units, words, colours, bars and
// lines that fit a terminal. It formats values and does no I/O; the pages are the packages
// below it, one for each analysis.
package page
