//! The crate to embed: `Engine::run`. The real `World` lives here.
