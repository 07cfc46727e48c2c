//! Memory for the core outside a server. The library's global allocator asks the server for it, and who links the library as a
//! crate has that allocator too: without this the first allocation of the test binary would end it.

use std::ffi::c_void;

use redis_module::raw;

extern "C" {
    fn malloc(size: usize) -> *mut c_void;
    fn free(memory: *mut c_void);
}

/// The loader calls this before `main`, and thus before anything allocates.
#[used]
#[link_section = ".init_array"]
static BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn lend_the_systems() {
        // SAFETY: nothing else runs yet, and the two functions fit each other.
        unsafe {
            raw::RedisModule_Alloc = Some(malloc);
            raw::RedisModule_Free = Some(free);
        }
    }
    lend_the_systems
};
