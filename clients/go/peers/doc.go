// Package peers holds this client against other lock libraries: their own tests, both on one lock while users move from one to the
// other, and the same contention for all. It is a module of its own, so that who uses the client does not depend on its peers.
package peers
