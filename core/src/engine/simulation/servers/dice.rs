//! Random worlds and random steps.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{
    guard, Careless, Clocks, Cluster, Disk, Limits, Mode, Server, Settings, State, Step, What,
};

/// The longest ttl of all.
pub(super) const LONGEST_MS: u64 = 1_000;

pub(super) struct Dice {
    rng: StdRng,
    names: u8,
    /// The longest ttl.
    longest: u64,
    lingers: bool,
    /// The settings of the guard that others are made of, if they change.
    changing: Option<guard::Settings>,
}

/// What kind of world it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) servers: usize,
    pub(super) loses_nothing: bool,
    pub(super) must_be_safe: bool,
    /// By how much wall clocks differ at most, at the beginning.
    pub(super) walls_apart_us: i64,
    /// By how many of a thousand wall clocks are fast or slow at most.
    pub(super) walls_drift: i64,
    /// The guard of each server.
    pub(super) guard: guard::Settings,
    /// Whether holds may end with connections.
    pub(super) lingers: bool,
    /// Whether the settings of the guard change.
    pub(super) settings_change: bool,
    /// What clients do wrong.
    pub(super) careless: Option<Careless>,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        Self {
            names: rng.random_range(1..=2),
            longest: [40, 200, LONGEST_MS, LONGEST_MS][rng.random_range(0..4)],
            lingers: false,
            changing: None,
            rng,
        }
    }

    pub(super) fn settings(&mut self, kind: Kind) -> Settings {
        self.lingers = kind.lingers && self.below(2) == 0;
        self.changing = kind.settings_change.then_some(kind.guard);
        let (apart, drift) = (kind.walls_apart_us, kind.walls_drift);
        let is_guarded = kind.guard.scope != guard::Scope::Off;
        if is_guarded {
            self.longest = kind.guard.max_ttl_ms;
        }
        // The speeds of two clocks differ by less than 1 %.
        let mono = if is_guarded { 4 } else { 10 };
        let clocks = (0..kind.servers).map(|_| Clocks {
            wall_ahead_us: self.rng.random_range(-apart..=apart),
            wall_fast: self.rng.random_range(-drift..=drift),
            mono_fast: self.rng.random_range(-mono..=mono),
            mono_begins_us: self.rng.random_range(100_000..100_000_000),
        });
        Settings {
            clocks: clocks.collect(),
            clients: self.rng.random_range(2..=4),
            hears_at_once: false,
            loses_nothing: kind.loses_nothing,
            must_be_safe: kind.must_be_safe,
            timer_is_prompt: false,
            tells_blocked: self.below(3) > 0,
            guard: kind.guard,
            old_primaries_stop: kind.guard.scope == guard::Scope::Failover,
            careless: kind.careless,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    fn ms(&mut self, most: u64) -> u64 {
        self.rng.random_range(1..=most)
    }

    pub(super) fn step(&mut self, cluster: &Cluster) -> Step {
        let c = self.below(cluster.clients.len());
        // Some come back within few steps, so that leases outlive a crash.
        let mut servers = cluster.servers.iter();
        let down = servers.position(|server| server.state == State::Down);
        if let Some(s) = down.filter(|_| self.below(4) == 0) {
            return self.restart(s, cluster);
        }
        if self.lingers && self.below(30) == 0 {
            return Step::Disconnect(c);
        }
        if let Some(guard) = self.changing.filter(|_| self.below(60) == 0) {
            return Step::Set(self.changed(guard));
        }
        match self.below(100) {
            0..=34 => self.ask(c, cluster),
            35..=59 => Step::Hear(c),
            60..=62 => Step::Lose(c, self.below(2) == 0),
            63..=71 => {
                let most = self.longest / [8, 40][self.below(2)] + 1;
                Step::Tick(self.rng.random_range(0..=most))
            }
            72 => Step::Tick(self.longest / 2),
            73..=74 => Step::Pass(self.longest / 8 + 1),
            75..=86 => Step::Receive(self.below(cluster.servers.len()), self.below(4) + 1),
            _ if cluster.settings.guard.scope == guard::Scope::Quorum => self.link(cluster),
            _ => self.fault(cluster),
        }
    }

    /// Each time is as it was at the beginning, or a half of it; the longest lease may be a
    /// quarter. More may be asked: as much as the world can give.
    fn changed(&mut self, guard: guard::Settings) -> guard::Settings {
        use guard::Scope::{Failover, Quorum, Restart};
        let scopes: &[_] = match guard.scope {
            Restart => &[Restart, Failover, Quorum],
            Failover => &[Failover, Quorum],
            _ => &[guard.scope],
        };
        let scope = scopes[self.below(scopes.len())];
        let mut either = |ms: u64| ms / [1, 2, 4][self.below(3)];
        guard::Settings {
            scope,
            max_ttl_ms: either(guard.max_ttl_ms),
            slack_ms: either(guard.slack_ms).max(guard.slack_ms / 2),
            fresh_ms: either(guard.fresh_ms).max(guard.fresh_ms / 2),
            ..guard
        }
    }

    fn ask(&mut self, c: usize, cluster: &Cluster) -> Step {
        let client = &cluster.clients[c];
        match (&client.pending, self.below(8)) {
            (Some(pending), 1..) if pending.reply.is_some() => return Step::Hear(c),
            (Some(_), 0) => return Step::Lose(c, true),
            (Some(_), _) => return Step::Tick(self.longest / 20 + 1),
            (None, _) => {}
        }
        let s = match self.below(12) {
            0 => self.below(cluster.servers.len()),
            _ => client.server,
        };
        let name = self.below(self.names.into()) as u8;
        let longest = match cluster.settings.guard.max_ttl_ms {
            0 => self.longest,
            most => self.longest.min(most),
        };
        let ttl = match self.below(3) {
            0 => longest,
            _ => self.ms(longest),
        };
        if let Some(name) = client.unconfirmed.keys().next() {
            return Step::Ask(c, s, What::Renew(*name, ttl));
        }
        let what = match (client.beliefs.contains_key(&name), self.below(10)) {
            (true, 0..=3) => What::Release(name),
            (true, 4..=6) => What::Renew(name, ttl),
            (false, 0) => What::Release(name),
            // Careless: it may hold nothing any more.
            (_, 1..=2) if client.may_check(name) => What::Check(name),
            (false, 3) if self.names == 2 => {
                let (limits, keep) = (self.limits(), self.keep());
                What::TakeBoth { ttl, limits, keep }
            }
            _ => What::Take {
                name,
                mode: match self.below(8) {
                    0..=3 => Mode::Exclusive,
                    4..=5 => Mode::Shared,
                    n => Mode::of_limit(n as u32 - 4).unwrap(),
                },
                ttl,
                limits: match self.limits() {
                    // Nothing is renewed while a message is on its way that makes a lease shorter.
                    limits if limits.is_channel() && client.beliefs.contains_key(&name) => {
                        Limits::Forever
                    }
                    limits => limits,
                },
                keep: self.keep(),
                linger: self.linger(),
            },
        };
        Step::Ask(c, s, what)
    }

    fn limits(&mut self) -> Limits {
        match self.below(10) {
            0..=1 => Limits::NoWait,
            2..=3 => Limits::Until(self.ms(self.longest)),
            4 => Limits::Notify,
            5 => Limits::NotifyUntil(self.ms(self.longest)),
            _ => Limits::Forever,
        }
    }

    fn keep(&mut self) -> u32 {
        match self.below(3) {
            0 => self.ms(self.longest) as u32,
            _ => 0,
        }
    }

    fn linger(&mut self) -> Option<u64> {
        if !self.lingers {
            return None;
        }
        match self.below(6) {
            0..=1 => Some(0),
            2 => Some(self.ms(self.longest / 2)),
            _ => None,
        }
    }

    /// What happens to links. A majority follows a primary only if most of it is no fault.
    fn link(&mut self, cluster: &Cluster) -> Step {
        let s = self.below(cluster.servers.len());
        if cluster.servers[s].state == State::Paused && self.below(3) == 0 {
            return Step::Resume(s);
        }
        match self.below(16) {
            0..=7 => Step::Flow,
            8..=9 => Step::HearAcks(s),
            10 => Step::Notice(s),
            11 if self.below(6) == 0 => Step::CutUnseen(s),
            11..=14 => Step::Follow(s, self.below(cluster.servers.len())),
            _ => self.fault(cluster),
        }
    }

    /// Faults, which end sooner than they begin.
    fn fault(&mut self, cluster: &Cluster) -> Step {
        let n = cluster.servers.len();
        let (s, to) = (self.below(n), self.below(n));
        let server = &cluster.servers[s];
        match (server.state, self.below(12)) {
            (State::Paused, 0..=7) => Step::Resume(s),
            (State::Down, 0..=7) => self.restart(s, cluster),
            (_, 0) => Step::Pause(s),
            (_, 1) => Step::Crash(s),
            (_, 2) => Step::Cut(s),
            (_, 3) => Step::HandOver(to),
            (_, 4) => Step::FailOver(to),
            (_, 5) if !server.is_primary => Step::Promote(s),
            (_, 6)
                if n == 1
                    && cluster.settings.guard.scope != guard::Scope::Off
                    && self.below(4) == 0 =>
            {
                let ms = self.ms(self.longest) as i64;
                // A start waits for longer than a clock goes back, or fences may fall.
                let least = if self.changing.is_some() { 2 } else { 1 };
                Step::SetClock(s, if self.below(3) == 0 { -ms / least } else { ms })
            }
            (_, 6..=7) if server.is_primary => Step::Demote(s, to),
            _ => Step::Follow(s, to),
        }
    }

    fn restart(&mut self, s: usize, cluster: &Cluster) -> Step {
        let disk = match self.below(4) {
            0 => Disk::Empty,
            n => Disk::Lacks(n - 1),
        };
        let lives = |server: &Server| server.is_primary && server.state != State::Down;
        let is_another = cluster.servers.iter().any(lives);
        Step::Restart(s, disk, !is_another || self.below(8) == 0)
    }
}
