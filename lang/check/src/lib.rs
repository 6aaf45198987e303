//! Names, units, sizes, shapes, params. Invariants: pure; the outside comes in through `World`
//! alone; every rule reports and goes on; no plan, no runtime.
