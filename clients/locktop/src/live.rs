//! The terminal: keys and reports come in, screens go out.

use std::io;
use std::sync::mpsc::{channel, Sender};
use std::thread;

use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::DefaultTerminal;
use redis::ConnectionInfo;

use crate::app::{App, Effect};
use crate::args::Args;
use crate::source::{self, Report, Watch, Wishes};
use crate::view::{self, Colours};

enum Input {
    Key(KeyEvent),
    /// The terminal has another size.
    Resized,
    Report(Report),
    /// The terminal has gone.
    Closed,
}

pub(crate) fn run(args: &Args, seeds: Vec<ConnectionInfo>, wishes: Wishes) -> io::Result<()> {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = Colours { on: !no_colour };
    let (inputs, inbox) = channel();
    let (reports, of_servers) = channel();
    let mut app = App::new(wishes.clone(), args.read_only, args.cluster);
    let mut watch = Watch::new(wishes, reports.clone());
    if args.cluster {
        source::follow_cluster(seeds, reports);
    } else {
        app.model.set_servers(&watch.set_servers(&seeds));
    }
    let forward = inputs.clone();
    thread::spawn(move || {
        while of_servers
            .recv()
            .is_ok_and(|report| forward.send(Input::Report(report)).is_ok())
        {}
    });
    let mut terminal = ratatui::try_init()?;
    thread::spawn(move || read_terminal(&inputs));
    let result = serve(&mut terminal, &mut app, &mut watch, &inbox, colours);
    ratatui::restore();
    result
}

fn serve(
    terminal: &mut DefaultTerminal,
    app: &mut App,
    watch: &mut Watch,
    inbox: &std::sync::mpsc::Receiver<Input>,
    colours: Colours,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| view::draw(frame, app, colours))?;
        let Ok(first) = inbox.recv() else {
            return Ok(());
        };
        // What has come meanwhile is one screen and not several.
        for input in std::iter::once(first).chain(inbox.try_iter()) {
            if handle(input, app, watch) {
                return Ok(());
            }
        }
    }
}

/// Whether the program ends.
fn handle(input: Input, app: &mut App, watch: &mut Watch) -> bool {
    match input {
        Input::Resized => {}
        Input::Closed => return true,
        Input::Report(report) => on_report(report, app, watch),
        Input::Key(key) => match app.on_key(key) {
            Effect::None => {}
            Effect::Quit => return true,
            Effect::Release(server, hold) => watch.release(&server, hold),
        },
    }
    watch.set_wishes(&app.wishes);
    false
}

fn on_report(report: Report, app: &mut App, watch: &mut Watch) {
    match report {
        Report::Looked { server, result } => app.update(&server, *result),
        Report::Released(text) => app.message = text,
        Report::NoNodes(error) => app.no_nodes = Some(error),
        Report::Nodes(nodes) => {
            app.no_nodes = None;
            app.model.set_servers(&watch.set_servers(&nodes));
        }
    }
}

fn read_terminal(inputs: &Sender<Input>) {
    loop {
        let input = match event::read() {
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Input::Key(key),
            Ok(Event::Resize(..)) => Input::Resized,
            Ok(_) => continue,
            Err(_) => Input::Closed,
        };
        let is_last = matches!(input, Input::Closed);
        if inputs.send(input).is_err() || is_last {
            return;
        }
    }
}
