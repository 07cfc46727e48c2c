//! The allocator: the server's, so that the module's memory is part of `used_memory` and of what maxmemory bounds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use redis_module::raw;

/// Asks the server for memory; in a process that is no server, one that links this library as a crate (tests, fuzzers, benchmarks),
/// the system.
///
/// The server's functions are there before the module's first allocation or never, so what one of the two gave comes back to the same one.
#[derive(Debug)]
pub(crate) struct ServerMemory;

/// The server's allocators align what is at least this large to it, and smaller sizes to the largest power of two in them.
const ALIGNMENT: usize = 16;

// SAFETY: both allocators keep the contract; the server's for every layout that asks for no more than its alignment, and the others
// are refused.
unsafe impl GlobalAlloc for ServerMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the static is written once, before the first allocation; the layout is the caller's word.
        unsafe {
            match raw::RedisModule_Alloc {
                Some(_) if layout.align() > ALIGNMENT => ptr::null_mut(),
                Some(alloc) => alloc(aligned(layout.size(), layout)).cast(),
                None => System.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from the same one of the two.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) => free(memory.cast()),
                None => System.dealloc(memory, layout),
            }
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match raw::RedisModule_Realloc {
                Some(realloc) => realloc(memory.cast(), aligned(new_size, layout)).cast(),
                None => System.realloc(memory, layout, new_size),
            }
        }
    }
}

/// A size that the server's allocators align as the layout asks.
const fn aligned(size: usize, layout: Layout) -> usize {
    match size.checked_next_multiple_of(layout.align()) {
        Some(size) => size,
        None => size,
    }
}
