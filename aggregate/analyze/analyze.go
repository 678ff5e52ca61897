// Package analyze answers questions about one or two States: what leaks, why an allocation
// failed, what differs between two moments, what an address was used for, what one process has
// and what one user may see.
package analyze
