//! Plain data both halves share; no logic, no async.
