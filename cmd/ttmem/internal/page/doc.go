// Package page has the common parts of text pages: units, words, colours, bars and lines that fit
// a terminal. It formats values and does no I/O; the packages below it are the pages, one for
// each analysis.
package page
