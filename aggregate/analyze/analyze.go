// Package analyze answers questions about one or two States: what leaks, why an allocation failed,
// what differs between two moments and what an address was used for. It also reduces snapshots to
// one process or one user.
// It is not part of ttmem's Go library: it changes without notice.
package analyze
