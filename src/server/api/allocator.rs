//! The allocator. It is the server's, so the module's memory counts in `used_memory` and towards
//! `maxmemory`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use redis_module::raw;

/// Asks the server for memory. In a process without a server it asks the system: tests, fuzzers and
/// benchmarks link this library as a crate.
///
/// The server's functions are there before the module's first allocation, or never. So memory
/// always returns to the allocator that gave it.
#[derive(Debug)]
pub(crate) struct ServerMemory;

/// The server's allocators align blocks of at least this size to it. They align a smaller block to
/// the largest power of two that divides its size.
const ALIGNMENT: usize = 16;

// SAFETY: both allocators keep the contract. The server's does so for every layout that asks for no
// more than its alignment; the other layouts are refused.
unsafe impl GlobalAlloc for ServerMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the static is written once, before the first allocation; the caller vouches for
        // the layout.
        unsafe {
            match raw::RedisModule_Alloc {
                Some(_) if layout.align() > ALIGNMENT => ptr::null_mut(),
                Some(alloc) => alloc(aligned(layout.size(), layout)).cast(),
                None => System.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; the memory came from the same allocator.
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

/// A size for which the server's allocators give the alignment of the layout.
const fn aligned(size: usize, layout: Layout) -> usize {
    match size.checked_next_multiple_of(layout.align()) {
        Some(size) => size,
        None => size,
    }
}
