// Package analyze has the answers of one or two States: each is a function of what these
// expose, without events, files or flags.
package analyze
