//! Buckets and ordered reductions over shared memory and QUIC.
//! Invariant: the sum of a step is one fixed tree over shards, whoever holds which shard.
