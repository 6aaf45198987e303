//! Messages, codec, version handshake. Invariants: the only place that knows the byte format;
//! decoders are total: any bytes give a message or an error, never a panic or a large allocation.
