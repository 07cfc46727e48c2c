//! Safe wrappers of the module API. Each wrapper states why its call is sound, so its users have
//! nothing to prove.

mod allocator;
mod caller;
pub(in crate::server) mod clock;
mod context;
mod key;
pub(in crate::server) mod lock_type;
pub(in crate::server) mod main_thread;
mod owned_string;
mod reply;
pub(in crate::server) mod scan;
mod server_info;
mod string;
mod user;

pub(crate) use allocator::ServerMemory;
pub(crate) use caller::{client_field, CallError, Caller};
pub(crate) use context::{Context, Level};
pub(crate) use key::{Content, OpenKey};
pub(crate) use owned_string::OwnedString;
pub(crate) use reply::Field;
pub(crate) use server_info::ServerInfo;
pub(crate) use string::{Arg, Argv};

use std::ffi::c_int;

use redis_module::raw;

/// Calls a function of the module API that every supported server has. It is used inside an
/// `unsafe` block.
///
/// Its users need not prove that the pointer is there. The server sets it before the load, the load
/// fails without it (`missing_function`), and it never changes after that: a second load of the
/// same file, which the server refuses, writes the same values. Each use states what its arguments
/// need.
macro_rules! call {
    ($name:ident($($arg:expr),* $(,)?)) => {
        (raw::$name.unwrap_unchecked())($($arg),*)
    };
}
pub(crate) use call;

/// A function of the module API; `None` where the server lacks it. It is used outside of `unsafe`.
macro_rules! optional {
    ($name:ident) => {
        // SAFETY: as with `call`, the static is not written after the load.
        unsafe { raw::$name }
    };
}
pub(crate) use optional;

/// The version of the server, in the notation of the module API: 7.0.1 is `0x0007_0001`.
pub(crate) fn server_version() -> c_int {
    // SAFETY: the function takes no arguments and reads a number.
    unsafe { call!(RedisModule_GetServerVersion()) }
}

/// Names the functions that [`call`] may be used with.
macro_rules! required {
    ($($name:ident),* $(,)?) => {
        /// The name of a needed function that this server lacks. That is a server older than 7.0.
        pub(crate) fn missing_function() -> Option<&'static str> {
            // SAFETY: these statics were written in this thread, by the initialisation of the
            // module before this call.
            $(if unsafe { (*(&raw const raw::$name)).is_none() } { return Some(stringify!($name)); })*
            None
        }
    };
}

required! {
    RedisModule_Alloc, RedisModule_Realloc, RedisModule_Free, RedisModule_CreateCommand, RedisModule_CreateDataType, RedisModule_SetModuleOptions,
    RedisModule_ReplyWithLongLong, RedisModule_ReplyWithNull, RedisModule_ReplyWithError, RedisModule_ReplyWithSimpleString,
    RedisModule_ReplyWithArray, RedisModule_ReplyWithStringBuffer, RedisModule_StringPtrLen, RedisModule_OpenKey,
    RedisModule_CloseKey, RedisModule_KeyType, RedisModule_DeleteKey, RedisModule_ModuleTypeGetType,
    RedisModule_ModuleTypeGetValue, RedisModule_ModuleTypeSetValue, RedisModule_GetAbsExpire, RedisModule_SetAbsExpire,
    RedisModule_SignalModifiedKey, RedisModule_Replicate, RedisModule_ReplicateVerbatim, RedisModule_GetContextFlags,
    RedisModule_GetServerVersion, RedisModule_GetContextFromIO, RedisModule_IsIOError, RedisModule_SaveStringBuffer,
    RedisModule_LoadStringBuffer, RedisModule_EmitAOF, RedisModule_DigestAddStringBuffer, RedisModule_DigestEndSequence,
    RedisModule_Log, RedisModule_BlockClient, RedisModule_AbortBlock, RedisModule_UnblockClient, RedisModule_SetDisconnectCallback,
    RedisModule_GetBlockedClientPrivateData, RedisModule_GetBlockedClientHandle, RedisModule_BlockedClientDisconnected,
    RedisModule_GetSelectedDb, RedisModule_SelectDb, RedisModule_DbSize, RedisModule_CreateString, RedisModule_FreeString, RedisModule_CreateTimer,
    RedisModule_StopTimer, RedisModule_AvoidReplicaTraffic, RedisModule_SubscribeToServerEvent, RedisModule_Call,
    RedisModule_FreeCallReply, RedisModule_CallReplyStringPtr, RedisModule_CallReplyInteger, RedisModule_CallReplyArrayElement, RedisModule_CallReplyType, RedisModule_GetClientId, RedisModule_GetDetachedThreadSafeContext,
    RedisModule_GetServerInfo, RedisModule_ServerInfoGetFieldC, RedisModule_FreeServerInfo, RedisModule_RegisterInfoFunc,
    RedisModule_InfoAddSection, RedisModule_InfoAddFieldULongLong, RedisModule_InfoAddFieldCString, RedisModule_GetNotifyKeyspaceEvents,
    RedisModule_NotifyKeyspaceEvent, RedisModule_GetUsedMemoryRatio, RedisModule_Scan, RedisModule_ScanCursorCreate,
    RedisModule_ScanCursorDestroy, RedisModule_ACLCheckChannelPermissions, RedisModule_ACLCheckCommandPermissions,
    RedisModule_ACLCheckKeyPermissions, RedisModule_EventLoopAddOneShot, RedisModule_FreeModuleUser, RedisModule_GetClientUserNameById,
    RedisModule_GetCommand, RedisModule_GetCommandKeysWithFlags, RedisModule_GetCurrentUserName, RedisModule_GetDbIdFromIO,
    RedisModule_GetDbIdFromOptCtx, RedisModule_GetKeyNameFromIO, RedisModule_GetKeyNameFromOptCtx, RedisModule_GetModuleUserFromUserName,
    RedisModule_IsKeysPositionRequest, RedisModule_KeyAtPos, RedisModule_KeyAtPosWithFlags, RedisModule_LoadConfigs,
    RedisModule_PublishMessage, RedisModule_PublishMessageShard, RedisModule_RegisterBoolConfig, RedisModule_RegisterEnumConfig,
    RedisModule_RegisterNumericConfig,
    RedisModule_ReplyWithCallReply, RedisModule_ReplyWithMap, RedisModule_SetCommandInfo,
}
