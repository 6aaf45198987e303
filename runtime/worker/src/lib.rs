//! Executes tasks; decides nothing. Invariant: never sees the language.
