//! The servers of the tests, and their differences.

use std::path::{Path, PathBuf};

/// Options with which a server accepts MODULE LOAD.
pub const MODULE_COMMAND: [&str; 2] = ["--enable-module-command", "yes"];

/// One of the supported servers. A kind that names a line of versions is the newest available one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis7_0,
    Redis7_2,
    Redis7_4,
    Redis8_2,
    Redis8_6,
    Valkey8_0,
    Valkey8_1,
    Valkey9,
}

impl Kind {
    /// Those on which every test runs.
    pub const EVERY: [Self; 5] = [
        Self::Redis7_0,
        Self::Redis8_2,
        Self::Redis8_6,
        Self::Valkey8_0,
        Self::Valkey9,
    ];

    /// Redis 7.2 and later: ACL categories of module commands, RDB files without empty module
    /// fields.
    pub fn is_7_2_or_later(self) -> bool {
        self != Kind::Redis7_0
    }

    /// Redis 7.4 and later, Valkey 8 and later: ACL categories that a module makes.
    pub fn has_module_categories(self) -> bool {
        !matches!(self, Kind::Redis7_0 | Kind::Redis7_2)
    }

    pub fn is_redis_8(self) -> bool {
        matches!(self, Kind::Redis8_2 | Kind::Redis8_6)
    }

    pub fn is_valkey(self) -> bool {
        matches!(self, Kind::Valkey8_0 | Kind::Valkey8_1 | Kind::Valkey9)
    }

    /// The name of the server in scripts/setup/servers.sh.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Redis7_0 => "redis-7.0.15",
            Kind::Redis7_2 => "redis-7.2.4",
            Kind::Redis7_4 => "redis-7.4.1",
            Kind::Redis8_2 => "redis-8.2.3",
            Kind::Redis8_6 => "redis-8.6",
            Kind::Valkey8_0 => "valkey-8.0.1",
            Kind::Valkey8_1 => "valkey-8.1",
            Kind::Valkey9 => "valkey-9",
        }
    }

    /// The folder that `make servers` creates.
    pub(super) fn folder(self) -> PathBuf {
        let servers = std::env::var_os("REDIS_LOCK_SERVERS").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join(".servers"),
            PathBuf::from,
        );
        servers.join(self.name()).join("bin")
    }

    /// The tool that checks this server's files, `redis-check-rdb` for `rdb`, if one was fetched
    /// that knows their version.
    #[allow(dead_code)] // Only the campaign uses it.
    pub fn checker(self, of: &str) -> Option<PathBuf> {
        // Valkey 9.1.2 writes a header into its append-only files that its own tool reports as
        // damage.
        if (self, of) == (Kind::Valkey9, "aof") {
            return None;
        }
        let (kind, name) = match self {
            Kind::Redis7_0 | Kind::Redis8_6 => (self, "redis-check"),
            Kind::Redis7_2 | Kind::Redis7_4 | Kind::Redis8_2 => return None,
            Kind::Valkey8_0 | Kind::Valkey8_1 | Kind::Valkey9 => (self, "valkey-check"),
        };
        Some(kind.folder().join(format!("{name}-{of}")))
    }

    pub fn binary(self) -> PathBuf {
        let binary = self.folder().join("server");
        assert!(binary.exists(), "{self:?} is missing: run `make servers`");
        binary
    }
}
