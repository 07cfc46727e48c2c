//! What a future or a guard that is dropped leaves to be done.

use std::sync::Arc;

use crate::driver::{Driver, Engine};

/// Does when it is dropped what a future has left to do.
pub(crate) struct Settle<D: Driver, F: Future<Output = ()> + Send + 'static> {
    engine: Arc<Engine<D>>,
    runtime: D::Runtime,
    leftover: Option<F>,
}

impl<D: Driver, F: Future<Output = ()> + Send + 'static> Settle<D, F> {
    pub(crate) fn new(engine: &Arc<Engine<D>>, runtime: &D::Runtime, leftover: F) -> Self {
        Self {
            engine: engine.clone(),
            runtime: runtime.clone(),
            leftover: Some(leftover),
        }
    }

    pub(crate) fn disarm(mut self) {
        self.leftover = None;
    }
}

impl<D: Driver, F: Future<Output = ()> + Send + 'static> Drop for Settle<D, F> {
    fn drop(&mut self) {
        if let Some(leftover) = self.leftover.take() {
            D::settle(self.engine.clone(), &self.runtime, leftover);
        }
    }
}
