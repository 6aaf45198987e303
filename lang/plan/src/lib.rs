//! Program + Facts -> Plan. Invariants: pure and deterministic; no files, no clock, no threads.
