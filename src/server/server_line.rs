//! Which server this is: its brand and the first two numbers of its version.

use super::api::Context;

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brand {
    Redis,
    Valkey,
}

/// A line of servers: brand, major and minor version. Its patches mend, and change no habit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line(pub(super) Brand, pub(super) u32, pub(super) u32);

impl Line {
    /// The line of this server. `None` when INFO does not say it in the usual way.
    ///
    /// `RM_GetServerVersion` does not tell Redis 8.0 from Valkey 8.0.
    pub(super) fn of(ctx: Context<'_>) -> Option<Self> {
        let version = |field| ctx.server_info(c"server", field);
        // Valkey says its own version beside the one of Redis that it stands for.
        let (brand, version) = match version(c"valkey_version") {
            Some(version) => (Brand::Valkey, version),
            None => (Brand::Redis, version(c"redis_version")?),
        };
        let mut numbers = version.to_str().ok()?.split('.');
        let mut number = || numbers.next()?.parse().ok();
        Some(Self(brand, number()?, number()?))
    }
}
