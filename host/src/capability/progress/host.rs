//! The generated trait over the events of the run.

use wasmtime::component::HasData;

use super::super::bindings::landfall::agent::{progress as wit, types};
use super::super::refusal::Refusal;
use super::{EventBudget, EventSink, GuestEvent, check_kind};

/// What the implementation sees of a guest's state.
pub(crate) struct View<'a> {
    pub(crate) events: &'a dyn EventSink,
    pub(crate) budget: &'a mut EventBudget,
}

/// The marker that ties the linker to [`View`].
pub(crate) struct HasProgress;

impl HasData for HasProgress {
    type Data<'a> = View<'a>;
}

impl types::Host for View<'_> {
    fn convert_error(&mut self, refusal: Refusal) -> wasmtime::Result<types::Error> {
        refusal.into_wit()
    }
}

impl wit::Host for View<'_> {
    async fn emit(&mut self, kind: String, payload: String) -> Result<(), Refusal> {
        check_kind(&kind)?;
        self.budget.take((kind.len() + payload.len()) as u64)?;
        self.events.emit(GuestEvent::Progress { kind, payload });
        Ok(())
    }
}
