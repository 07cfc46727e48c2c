//! The bad days of a server: it is stopped, paused, busy, out of disk, out of memory, out of connections, and its clock jumps. Whatever
//! happens, nobody who waits is forgotten, nobody is granted who must not be, and fences rise.

mod busy;
mod clock;
mod connections;
mod crowd;
mod disk;
mod flush;
mod memory;
mod stopped;
mod surroundings;
