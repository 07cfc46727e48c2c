//! What the keys do. No connection and no terminal: keys and reports come in, effects go out.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::model::lock::Detail;
use crate::model::{Model, Order, Snapshot, Target};
use crate::source::{Claim, Databases, Past, Wishes};

const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub(crate) struct App {
    pub(crate) model: Model,
    pub(crate) order: Order,
    pub(crate) wishes: Wishes,
    pub(crate) read_only: bool,
    pub(crate) is_cluster: bool,
    pub(crate) screen: Screen,
    /// The row that is selected. It stays so wherever the lock goes in the table.
    pub(crate) selected: Option<Target>,
    /// How far a screen with more lines than fit has been moved.
    pub(crate) scroll: u16,
    /// What was done last, or why it was not.
    pub(crate) message: String,
    /// Why the nodes of the cluster are not known.
    pub(crate) no_nodes: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Screen {
    #[default]
    List,
    Filter,
    Detail(Target),
    Release(Release),
    Databases(usize),
    Numbers(String),
    /// The most contended keys since the start or LOCK.RESETSTAT.
    Contended,
    /// The held locks that a command or eviction has taken.
    Log,
    Help,
}

/// The question before a hold or a wait is ended by force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Release {
    pub(crate) target: Target,
    /// None until LOCK.INFO has answered. It does not change from then on: what ends is what was
    /// shown.
    pub(crate) detail: Option<Detail>,
    back_to_detail: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    None,
    Quit,
    /// Ends a hold or a wait of a server.
    End(String, Claim),
}

impl App {
    pub(crate) fn new(wishes: Wishes, read_only: bool, is_cluster: bool) -> Self {
        Self {
            model: Model::default(),
            order: Order::default(),
            wishes,
            read_only,
            is_cluster,
            screen: Screen::List,
            selected: None,
            scroll: 0,
            message: String::new(),
            no_nodes: None,
        }
    }

    pub(crate) fn update(&mut self, server: &str, result: Result<Snapshot, String>) {
        self.model.update(server, result);
        if self.selected.is_none() {
            self.selected = self.model.rows(&self.order).first().map(|row| row.target());
        }
        self.fill_question();
    }

    /// Puts the lock into the question that waits for it.
    fn fill_question(&mut self) {
        let Screen::Release(release) = &mut self.screen else {
            return;
        };
        if release.detail.is_some() {
            return;
        }
        let problem = match self.model.detail(&release.target) {
            None => return,
            Some(Ok(Some(detail))) if !detail.holders.is_empty() || !detail.waiters.is_empty() => {
                release.detail = Some(detail.clone());
                return;
            }
            Some(Ok(_)) => "nobody holds the lock or waits for it".to_owned(),
            Some(Err(error)) => format!("the holder is not known: {error}"),
        };
        self.message = problem;
        self.close_question();
    }

    pub(crate) fn on_key(&mut self, key: KeyEvent) -> Effect {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return Effect::Quit;
        }
        if is_control {
            return Effect::None;
        }
        match self.screen.clone() {
            Screen::List => self.on_list_key(key.code),
            Screen::Filter => self.on_filter_key(key.code),
            Screen::Detail(target) => self.on_detail_key(key.code, target),
            Screen::Contended | Screen::Log => self.on_past_key(key.code),
            Screen::Release(release) => self.on_release_key(key.code, release),
            Screen::Databases(at) => self.on_databases_key(key.code, at),
            Screen::Numbers(_) | Screen::Help => self.on_reading_key(key.code),
        }
    }

    fn on_list_key(&mut self, key: KeyCode) -> Effect {
        self.message.clear();
        match key {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Esc if self.order.filter.is_empty() => return Effect::Quit,
            KeyCode::Esc => self.order.filter.clear(),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::PageDown => self.select(10),
            KeyCode::PageUp => self.select(-10),
            KeyCode::Home | KeyCode::Char('g') => self.select(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.select(isize::MAX),
            KeyCode::Char('s') => self.order.sort = self.order.sort.next(),
            KeyCode::Char('r') => self.order.reverse = !self.order.reverse,
            KeyCode::Char('/') => self.screen = Screen::Filter,
            KeyCode::Char('a') => self.wishes.all = !self.wishes.all,
            KeyCode::Char('?' | 'h') => self.open(Screen::Help),
            KeyCode::Char('d') => self.open_databases(),
            KeyCode::Char('i') => self.open_numbers(),
            KeyCode::Char('c') => self.open_past(Screen::Contended),
            KeyCode::Char('l') => self.open_past(Screen::Log),
            KeyCode::Enter => {
                if let Some(target) = self.shown_selection() {
                    self.open(Screen::Detail(target.clone()));
                    self.wishes.detail = Some(target);
                }
            }
            KeyCode::Char('x') => {
                if let Some(target) = self.shown_selection() {
                    self.ask_release(target, false);
                }
            }
            _ => self.on_pace_key(key),
        }
        Effect::None
    }

    /// The keys that mean the same on the list and on the screens in its place.
    fn on_pace_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('p' | ' ') => self.wishes.paused = !self.wishes.paused,
            // From 1 s it goes by halves and doubles.
            KeyCode::Char('+') => self.wishes.interval = (self.wishes.interval * 2).min(LONGEST),
            KeyCode::Char('-') => self.wishes.interval = (self.wishes.interval / 2).max(SHORTEST),
            _ => {}
        }
    }

    fn on_filter_key(&mut self, key: KeyCode) -> Effect {
        match key {
            KeyCode::Esc => {
                self.order.filter.clear();
                self.screen = Screen::List;
            }
            KeyCode::Enter => self.screen = Screen::List,
            KeyCode::Backspace => {
                self.order.filter.pop();
                self.select_what_is_seen();
            }
            KeyCode::Down => self.select(1),
            KeyCode::Up => self.select(-1),
            // Keys are shown in ASCII.
            KeyCode::Char(char @ ' '..='~') => {
                self.order.filter.push(char);
                self.select_what_is_seen();
            }
            _ => {}
        }
        Effect::None
    }

    fn on_detail_key(&mut self, key: KeyCode, target: Target) -> Effect {
        self.message.clear();
        match key {
            KeyCode::Char('x') => self.ask_release(target, true),
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter | KeyCode::Left => {
                self.open(Screen::List);
                self.wishes.detail = None;
            }
            _ if self.scrolls(key) => {}
            _ => self.on_pace_key(key),
        }
        Effect::None
    }

    fn on_past_key(&mut self, key: KeyCode) -> Effect {
        self.message.clear();
        match key {
            KeyCode::Char('c') => self.open_past(Screen::Contended),
            KeyCode::Char('l') => self.open_past(Screen::Log),
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter | KeyCode::Left => {
                self.open_past(Screen::List);
            }
            _ if self.scrolls(key) => {}
            _ => self.on_pace_key(key),
        }
        Effect::None
    }

    fn on_reading_key(&mut self, key: KeyCode) -> Effect {
        if !self.scrolls(key) {
            self.open(Screen::List);
        }
        Effect::None
    }

    fn scrolls(&mut self, key: KeyCode) -> bool {
        let to = match key {
            KeyCode::Down | KeyCode::Char('j') => self.scroll.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll.saturating_sub(10),
            KeyCode::Home => 0,
            KeyCode::End => u16::MAX,
            _ => return false,
        };
        self.scroll = to;
        true
    }

    fn on_databases_key(&mut self, key: KeyCode, at: usize) -> Effect {
        let choices = self.database_choices();
        match key {
            KeyCode::Down | KeyCode::Char('j') => {
                let last = choices.len().saturating_sub(1);
                self.screen = Screen::Databases((at + 1).min(last));
            }
            KeyCode::Up | KeyCode::Char('k') => {
                self.screen = Screen::Databases(at.saturating_sub(1));
            }
            KeyCode::Enter => {
                self.open(Screen::List);
                if let Some(choice) = choices.get(at) {
                    self.wishes.databases = *choice;
                    self.selected = None;
                }
            }
            KeyCode::Esc | KeyCode::Char('q' | 'd') => self.open(Screen::List),
            _ => {}
        }
        Effect::None
    }

    fn on_release_key(&mut self, key: KeyCode, release: Release) -> Effect {
        // Before the question is complete there is nothing to answer.
        let ends = release.detail.as_ref().and_then(|detail| {
            let first = || Some((detail.waiters.first()?.token.clone(), None));
            let holder = detail.oldest();
            holder.map_or_else(first, |holder| {
                Some((holder.token.clone(), Some(holder.fence)))
            })
        });
        if let (KeyCode::Char('y'), Some((token, fence))) = (key, ends) {
            let place = release.target.place;
            self.close_question();
            let claim = Claim {
                place,
                token,
                fence,
            };
            return Effect::End(release.target.server, claim);
        }
        if release.detail.is_some() || matches!(key, KeyCode::Esc | KeyCode::Char('q' | 'n')) {
            self.message = "nothing was ended".to_owned();
            self.close_question();
        }
        Effect::None
    }

    fn ask_release(&mut self, target: Target, back_to_detail: bool) {
        if self.read_only {
            self.message = "locktop runs with --read-only, so nothing is ended".to_owned();
            return;
        }
        let detail = None;
        self.screen = Screen::Release(Release {
            target: target.clone(),
            detail,
            back_to_detail,
        });
        if back_to_detail {
            // What is on the screen is what the operator wants gone.
            self.fill_question();
        } else {
            self.wishes.detail = Some(target);
        }
    }

    fn close_question(&mut self) {
        if let Screen::Release(release) = &self.screen {
            let target = release.target.clone();
            if release.back_to_detail {
                self.screen = Screen::Detail(target);
            } else {
                self.wishes.detail = None;
                self.screen = Screen::List;
            }
        }
    }

    fn open(&mut self, screen: Screen) {
        self.screen = screen;
        self.scroll = 0;
    }

    /// Only what is on the screen is asked for.
    fn open_past(&mut self, screen: Screen) {
        self.wishes.past = Past {
            contended: screen == Screen::Contended,
            log: screen == Screen::Log,
        };
        self.open(screen);
    }

    fn open_databases(&mut self) {
        if self.is_cluster {
            self.message = "a cluster has one database".to_owned();
            return;
        }
        let choices = self.database_choices();
        let at = choices
            .iter()
            .position(|choice| *choice == self.wishes.databases);
        self.open(Screen::Databases(at.unwrap_or_default()));
    }

    /// All of them, those that have keys, and the one that is shown.
    pub(crate) fn database_choices(&self) -> Vec<Databases> {
        let mut numbers = self.model.databases();
        numbers.push(0);
        if let Databases::One(shown) = self.wishes.databases {
            numbers.push(shown);
        }
        numbers.sort_unstable();
        numbers.dedup();
        let numbers = numbers.into_iter().map(Databases::One);
        std::iter::once(Databases::All).chain(numbers).collect()
    }

    /// Those of the selected lock's server, else of the first one.
    fn open_numbers(&mut self) {
        let selected = self.shown_selection().map(|target| target.server);
        let first = || self.model.servers.first().map(|server| server.name.clone());
        if let Some(server) = selected.or_else(first) {
            self.open(Screen::Numbers(server));
        }
    }

    /// The place of the selected row in the table.
    pub(crate) fn selected_row(&self) -> Option<usize> {
        let selected = self.selected.as_ref()?;
        let rows = self.model.rows(&self.order);
        rows.iter().position(|row| row.target() == *selected)
    }

    /// The selected lock, if it is in the table.
    fn shown_selection(&self) -> Option<Target> {
        self.selected_row().and_then(|_| self.selected.clone())
    }

    /// The first row, if the selected one is not among those that the filter leaves.
    fn select_what_is_seen(&mut self) {
        if self.selected_row().is_none() {
            self.select(0);
        }
    }

    fn select(&mut self, step: isize) {
        let rows = self.model.rows(&self.order);
        let last = rows.len().saturating_sub(1);
        // A lock that has left the table is no start: then the first row is the next.
        let to = match self.selected_row() {
            Some(at) => at.saturating_add_signed(step).min(last),
            None => 0,
        };
        self.selected = rows.get(to).map(|row| row.target());
    }
}

#[cfg(test)]
pub(crate) mod tests;
