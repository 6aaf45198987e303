//! Diagnostics: codes with a page each, suggestions, rendering.
//! Invariant: the only crate that knows miette. It knows nothing of the language's grammar,
//! of plans or of the runtime.
