//! Text to syntax tree. Invariants: parsing never fails (`text -> (File, Vec<Diagnostic>)`),
//! never overflows the stack, and knows no block, setting or unit names. No I/O.
