//! Avro schemas compiled to plans; the row contract's buffers.
