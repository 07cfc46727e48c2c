//! What is played: the topologies, the modes of the guard, the faults, and the choices of a seed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::adapters::those_set_up;
use super::partition::Partition;
use crate::harness::{setting, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// One server, which is disturbed, or ended and started again.
    Single,
    /// A primary and two replicas. The driver promotes.
    Group,
    /// The same, and three sentinels promote.
    Sentinel,
    /// Three primaries with a replica each. There is no majority in a shard of two.
    Cluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    Restart,
    Failover,
    Quorum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The primary is killed and starts with nothing, with an older RDB, with the beginning of its
    /// append-only file.
    RestartEmpty,
    RestartRdb,
    RestartAof,
    /// Nothing happens for a while.
    Calm,
    /// The primary stands still for longer than a lease, and goes on.
    Paused,
    /// Its wall clock is set forward, or back.
    ClockStep,
    /// Its append-only file cannot grow any more, and then it is killed.
    DiskFull,
    /// The primary is killed, and a replica is promoted that lacks its newest grants.
    Behind,
    /// The same, and then the promoted one is killed before its guard ends.
    Twice,
    /// As in `Behind`, because what the replicas get takes its time.
    Slow,
    /// As in `Behind`, with clocks of different speed that show different times.
    Speeds,
    /// As in `Behind`, after other modes and other leases were set and taken back.
    Config,
    /// `FAILOVER`: nothing is lost.
    Planned,
    /// The servers get another build of the module, one after the other.
    Upgrade,
    /// The old primary stands still during the promotion, and goes on within the slack.
    Stopped,
    /// The old primary goes on serving its clients within the slack.
    LivesOn,
    /// The network between the old primary and the others drops everything one way, or both. Clients
    /// reach all of them.
    Partition,
    /// A replica is promoted that never got any data.
    Empty,
    /// The old primary loses its replicas, and serves its clients to the end of the round.
    CutOff,
    /// A slot of a cluster moves: key by key, at once (`CLUSTER MIGRATESLOTS`), or without its keys.
    Moved,
    MovedAtOnce,
    Seized,
    /// One server: clients are killed and unblocked; locks are deleted, renamed and cut short; the server
    /// sleeps, and holds writes back.
    Busy,
    /// The same with FLUSHALL, FLUSHDB and SWAPDB.
    Flushed,
    /// It is killed or shut down, with `appendfsync always`, and also while it rewrites its file.
    Killed,
    Shut,
    Rewritten,
    /// It is killed with `everysec`, loses the end of its file, or has an RDB alone.
    Everysec,
    PowerCut,
    Saved,
}

use Fault::{
    Behind, Busy, Calm, ClockStep, Config, CutOff, DiskFull, Empty, Everysec, Flushed, Killed,
    LivesOn, Moved, MovedAtOnce, Paused, Planned, PowerCut, RestartAof, RestartEmpty, RestartRdb,
    Rewritten, Saved, Seized, Shut, Slow, Speeds, Stopped, Twice, Upgrade,
};

const TOPOLOGIES: [Topology; 4] = [
    Topology::Single,
    Topology::Group,
    Topology::Sentinel,
    Topology::Cluster,
];

const MODES: [Mode; 3] = [Mode::Restart, Mode::Failover, Mode::Quorum];

const FAULTS: [Fault; 30] = [
    RestartEmpty,
    RestartRdb,
    RestartAof,
    Calm,
    Paused,
    ClockStep,
    DiskFull,
    Behind,
    Twice,
    Slow,
    Speeds,
    Config,
    Planned,
    Upgrade,
    Stopped,
    LivesOn,
    Fault::Partition,
    Empty,
    CutOff,
    Moved,
    MovedAtOnce,
    Seized,
    Busy,
    Flushed,
    Killed,
    Shut,
    Rewritten,
    Everysec,
    PowerCut,
    Saved,
];

pub const SLACK_MS: u64 = 500;
pub const FRESH_MS: u64 = 1_000;
/// The times that the clocks of `Speeds` show differ by less. It is within the guard's conditions.
pub const CLOCKS_APART_MS: u64 = 800;
/// A lease as it is used. After a promotion a much shorter one ends before its owner can renew it.
pub const LONG_TTL_MS: u64 = 10_000;

impl Topology {
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn has(self, mode: Mode, fault: Fault) -> bool {
        match self {
            Self::Single => mode == Mode::Restart && (fault.is_of_one() || fault == Paused),
            _ if fault.is_of_one() => false,
            Self::Group => mode >= fault.least_mode() && !fault.is_of_slot(),
            // After SENTINEL FAILOVER the old primary goes on for longer than any slack.
            Self::Sentinel => match mode {
                Mode::Restart => false,
                Mode::Failover => fault == Behind,
                Mode::Quorum => matches!(fault, Behind | CutOff | Planned),
            },
            Self::Cluster => {
                let is_failover = matches!(fault, Behind | LivesOn | Planned);
                mode == Mode::Failover && (is_failover || fault.is_of_slot())
            }
        }
    }
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Failover => "failover",
            Self::Quorum => "quorum",
        }
    }

    /// By when after the promotion an old primary must have granted for the last time.
    pub fn slack_ms(self) -> Option<u64> {
        (self == Self::Failover).then_some(SLACK_MS)
    }
}

impl Fault {
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Whether the first primary stays the primary.
    pub fn is_restart(self) -> bool {
        matches!(
            self,
            RestartEmpty | RestartRdb | RestartAof | Calm | Paused | ClockStep | DiskFull
        )
    }

    fn is_of_slot(self) -> bool {
        matches!(self, Moved | MovedAtOnce | Seized)
    }

    fn is_of_one(self) -> bool {
        matches!(
            self,
            Busy | Flushed | Killed | Shut | Rewritten | Everysec | PowerCut | Saved
        )
    }

    /// Whether one server lives through it.
    pub fn is_disturbance(self) -> bool {
        matches!(self, Busy | Flushed | Paused)
    }

    /// The first mode within whose conditions it is. Each mode includes the one before it.
    fn least_mode(self) -> Mode {
        match self {
            _ if self.is_restart() => Mode::Restart,
            CutOff => Mode::Quorum,
            _ => Mode::Failover,
        }
    }

    /// Whether the next primary lacks grants.
    pub fn loses(self) -> bool {
        !matches!(
            self,
            Planned | Upgrade | Calm | Paused | ClockStep | Moved | MovedAtOnce
        )
    }

    fn is_known_to(self, kind: Kind) -> bool {
        match self {
            MovedAtOnce => kind == Kind::Valkey9,
            _ => true,
        }
    }
}

/// How the replica that is promoted comes to lack the newest grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lag {
    /// It follows nobody for a while.
    Unlinked,
    /// It stands still for a while.
    Stopped,
    /// It lacks what was on its way.
    InFlight,
}

/// A round.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub kind: Kind,
    pub topology: Topology,
    pub mode: Mode,
    pub is_guarded: bool,
    pub fault: Fault,
    pub lag: Lag,
    /// The longest lease.
    pub max_ttl_ms: u64,
    /// The language of an adapter that takes part.
    pub adapter: Option<&'static str>,
}

impl Plan {
    pub fn random(&self, of: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed ^ (of << 48))
    }

    /// What the first line of the journal says.
    pub fn told(&self) -> String {
        let Self {
            seed,
            kind,
            topology,
            mode,
            is_guarded,
            fault,
            max_ttl_ms,
            adapter,
            ..
        } = self;
        let adapter = adapter.map_or(String::new(), |language| format!(" adapter={language}"));
        format!(
            "seed={seed} server={} topology={} mode={} fault={} guarded={is_guarded} max_ttl={max_ttl_ms} loses={}",
            kind.name(),
            topology.name(),
            mode.name(),
            fault.name(),
            fault.loses()
        ) + &adapter
    }

    /// The module's arguments, and options of the server.
    pub fn options(&self) -> Vec<String> {
        let max_ttl_ms = self.max_ttl_ms;
        let guard = match (self.is_guarded, self.mode) {
            (false, _) => String::new(),
            (true, Mode::Restart) => "guard restart".into(),
            (true, Mode::Failover) => format!("guard failover guard-slack {SLACK_MS}"),
            (true, Mode::Quorum) => {
                format!("guard quorum guard-members 3 guard-fresh {FRESH_MS}")
            }
        };
        let aof = match self.fault {
            RestartAof | DiskFull => "--appendonly yes --auto-aof-rewrite-percentage 0",
            _ => "",
        };
        // The servers' own defaults differ.
        let replication =
            "--repl-diskless-sync yes --repl-diskless-sync-delay 0 --appendfsync everysec";
        let line = format!("{guard} max-ttl {max_ttl_ms} {replication} {aof}");
        line.split_whitespace().map(str::to_string).collect()
    }

    /// Whether half of the clients stay at the old primary until it refuses them.
    pub fn is_old_served(&self) -> bool {
        let is_by_sentinel = self.topology == Topology::Sentinel && self.fault == Planned;
        self.fault == CutOff || is_by_sentinel
    }

    /// Whether whoever holds a lock can keep it.
    pub fn can_keep(&self) -> bool {
        self.max_ttl_ms == LONG_TTL_MS && self.fault != ClockStep
    }

    /// How long one server is disturbed.
    pub fn single_ms(&self) -> u64 {
        setting("SOAK_SECONDS").map_or(4_000, |seconds: u64| seconds * 1_000)
    }

    /// C: for how long after the failover there is no new grant.
    pub fn wait_ms(&self) -> u64 {
        let max_ttl_ms = match self.fault {
            // A clock that is behind sees leases of another server that are longer by that.
            Speeds => self.max_ttl_ms + CLOCKS_APART_MS,
            _ => self.max_ttl_ms,
        };
        match self.mode {
            _ if !self.is_guarded => 0,
            Mode::Quorum => (max_ttl_ms + FRESH_MS) * 104 / 100,
            // The driver has set `quorum` for a while, and what that waits for goes on.
            _ if self.fault == Config => (max_ttl_ms + FRESH_MS) * 104 / 100,
            _ if self.fault.is_restart() => max_ttl_ms + 1_000,
            _ => max_ttl_ms + SLACK_MS,
        }
    }
}

/// A server, where it stands, its mode and what happens to it.
type Case = (Kind, Topology, Mode, Fault);

/// What the settings allow.
pub struct Choice {
    cases: Vec<Case>,
}

impl Choice {
    pub fn from_settings() -> Self {
        let [servers, topologies, modes, faults] = [
            "CAMPAIGN_SERVERS",
            "CAMPAIGN_TOPOLOGIES",
            "CAMPAIGN_MODES",
            "CAMPAIGN_FAULTS",
        ]
        .map(|name| setting::<String>(name).unwrap_or_default());
        Self::of(&servers, &topologies, &modes, &faults)
    }

    /// All whose names begin so. Each is a list.
    pub fn of(servers: &str, topologies: &str, modes: &str, faults: &str) -> Self {
        let allows = |list: &str| {
            let names: Vec<String> = list.split(',').map(str::to_string).collect();
            move |name: &str| names.iter().any(|allowed| name.starts_with(&allowed[..]))
        };
        let is_server = allows(servers);
        let is_topology = allows(topologies);
        let is_mode = allows(modes);
        let is_fault = allows(faults);
        let is_possible = Partition::is_possible();
        if !is_possible {
            eprintln!("no partitions: not in a network namespace that is made for them");
        }
        let all = TOPOLOGIES.iter().flat_map(|topology| {
            MODES.iter().flat_map(move |mode| {
                let faults = FAULTS.iter().filter(|fault| topology.has(*mode, **fault));
                faults
                    .flat_map(move |fault| Kind::EVERY.map(|kind| (kind, *topology, *mode, *fault)))
            })
        });
        let cases: Vec<Case> = all
            .filter(|(kind, topology, mode, fault)| {
                is_server(kind.name())
                    && is_topology(&topology.name())
                    && is_mode(mode.name())
                    && is_fault(&fault.name())
                    && fault.is_known_to(*kind)
                    && (is_possible || *fault != Fault::Partition)
            })
            .collect();
        assert!(!cases.is_empty(), "the settings leave nothing to play");
        Self { cases }
    }

    pub fn len(&self) -> u64 {
        self.cases.len() as u64
    }

    /// The rounds go through all servers, topologies, modes and faults.
    pub fn plan(&self, number: u64, seed: u64, is_guarded: bool) -> Plan {
        let of = usize::try_from(number % self.cases.len() as u64).unwrap();
        let (kind, topology, mode, fault) = self.cases[of];
        let mut random = StdRng::seed_from_u64(seed);
        let lag = match random.random_range(0..8) {
            0 => Lag::InFlight,
            1 | 2 => Lag::Stopped,
            _ => Lag::Unlinked,
        };
        let max_ttl_ms = match random.random_range(0..6) {
            0 => LONG_TTL_MS,
            1 | 2 => 2_500,
            _ if fault == Config => 2_500,
            _ => 1_000,
        };
        // One round of four, because their processes are dear.
        let adapters = those_set_up();
        let is_one = topology == Topology::Group && random.random_range(0..4) == 0;
        let adapter = match adapters.len() {
            0 => None,
            all => is_one.then(|| adapters[random.random_range(0..all)]),
        };
        Plan {
            adapter,
            seed,
            kind,
            topology,
            mode,
            is_guarded: is_guarded && topology != Topology::Single,
            fault,
            lag,
            max_ttl_ms,
        }
    }
}
