//! The brand of the server and its release line, which is the first two numbers of its version.

use crate::server::api::{Context, ServerInfo};

/// The brand of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Brand {
    Redis,
    Valkey,
}

/// A release line: brand, major and minor version. Patch releases do not change the behaviour that
/// the module relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct ReleaseLine(
    pub(in crate::server) Brand,
    pub(in crate::server) u32,
    pub(in crate::server) u32,
);

impl ReleaseLine {
    /// The release line of this server. `None` if INFO does not contain it in the usual form.
    ///
    /// `RM_GetServerVersion` does not distinguish Redis 8.0 from Valkey 8.0.
    pub(in crate::server) fn of(ctx: Context<'_>) -> Option<Self> {
        let version = |field| ServerInfo::field_of(ctx, c"server", field);
        // Valkey shows its own version and the version of Redis that it is compatible with.
        let (brand, version) = match version(c"valkey_version") {
            Some(version) => (Brand::Valkey, version),
            None => (Brand::Redis, version(c"redis_version")?),
        };
        let mut numbers = version.to_str().ok()?.split('.');
        let mut number = || numbers.next()?.parse().ok();
        Some(Self(brand, number()?, number()?))
    }
}
