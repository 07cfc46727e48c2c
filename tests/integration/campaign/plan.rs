//! What is played: the topologies, the modes of the guard, the faults, and the choices of a seed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::setting;
use crate::harness::Kind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// A primary and two replicas. The driver promotes.
    Group,
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
    /// The primary is killed, and a replica is promoted that lacks its newest grants.
    Behind,
    /// The same, and then the promoted one is killed before its guard ends.
    Twice,
    /// `FAILOVER`: nothing is lost.
    Planned,
    /// The old primary stands still during the promotion, and goes on within the slack.
    Stopped,
    /// The old primary goes on serving its clients within the slack.
    LivesOn,
    /// A replica is promoted that never got any data.
    Empty,
    /// The old primary loses its replicas, and serves its clients to the end of the round.
    CutOff,
}

use Fault::{
    Behind, Calm, ClockStep, CutOff, Empty, LivesOn, Paused, Planned, RestartAof, RestartEmpty,
    RestartRdb, Stopped, Twice,
};

const TOPOLOGIES: [Topology; 1] = [Topology::Group];

const MODES: [Mode; 3] = [Mode::Restart, Mode::Failover, Mode::Quorum];

const FAULTS: [Fault; 13] = [
    RestartEmpty,
    RestartRdb,
    RestartAof,
    Calm,
    Paused,
    ClockStep,
    Behind,
    Twice,
    Planned,
    Stopped,
    LivesOn,
    Empty,
    CutOff,
];

const KINDS: [Kind; 5] = [
    Kind::Redis6_2,
    Kind::Redis7_0,
    Kind::Redis8_2,
    Kind::Valkey8_0,
    Kind::Valkey9,
];

const SLACK_MS: u64 = 500;
const FRESH_MS: u64 = 1_000;

impl Topology {
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn has(self, mode: Mode, fault: Fault) -> bool {
        match self {
            Self::Group => mode >= fault.least_mode(),
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
            RestartEmpty | RestartRdb | RestartAof | Calm | Paused | ClockStep
        )
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
        !matches!(self, Planned | Calm | Paused | ClockStep)
    }

    /// Whether leases end by another clock than that of their clients.
    pub fn ends_leases(self) -> bool {
        self == ClockStep
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
            ..
        } = self;
        format!(
            "seed={seed} server={} topology={} mode={} fault={} guarded={is_guarded} max_ttl={max_ttl_ms} loses={}",
            kind.name(),
            topology.name(),
            mode.name(),
            fault.name(),
            fault.loses()
        )
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
            RestartAof => "--appendonly yes --auto-aof-rewrite-percentage 0",
            _ => "",
        };
        // The servers' own defaults differ.
        let replication =
            "--repl-diskless-sync yes --repl-diskless-sync-delay 0 --appendfsync everysec";
        let line = format!("{guard} max-ttl {max_ttl_ms} {replication} {aof}");
        line.split_whitespace().map(str::to_string).collect()
    }

    /// C: for how long after the failover there is no new grant.
    pub fn wait_ms(&self) -> u64 {
        let max_ttl_ms = self.max_ttl_ms;
        match self.mode {
            _ if !self.is_guarded => 0,
            Mode::Quorum => (max_ttl_ms + FRESH_MS) * 104 / 100,
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
        let all = TOPOLOGIES.iter().flat_map(|topology| {
            MODES.iter().flat_map(move |mode| {
                let faults = FAULTS.iter().filter(|fault| topology.has(*mode, **fault));
                faults.flat_map(move |fault| KINDS.map(|kind| (kind, *topology, *mode, *fault)))
            })
        });
        let cases: Vec<Case> = all
            .filter(|(kind, topology, mode, fault)| {
                is_server(kind.name())
                    && is_topology(&topology.name())
                    && is_mode(mode.name())
                    && is_fault(&fault.name())
            })
            .collect();
        assert!(!cases.is_empty(), "the settings leave nothing to play");
        Self { cases }
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
        // After a promotion the last second of a hold does not count. So only longer leases outlive it.
        let max_ttl_ms = if random.random_range(0..3) == 0 {
            2_500
        } else {
            1_000
        };
        Plan {
            seed,
            kind,
            topology,
            mode,
            is_guarded,
            fault,
            lag,
            max_ttl_ms,
        }
    }
}
