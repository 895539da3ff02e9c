;; The plugin that `kiteline init` lays into lib/: keeps every record as it is, on its one port "out".
;; identity.wasm beside this file is the same in binary form; a test compares them.
(module
  (import "kiteline:transform/host@0.1.0" "emit" (func $emit (param i32 i32 i32)))
  (memory (export "memory") 1)

  ;; Everything below 1024 is fixed; above it is what the host puts in, forgotten after each call of `process`.
  (global $free (mut i32) (i32.const 1024))
  (data (i32.const 16) "identity1.0.0")
  (data (i32.const 32) "out")

  ;; result<manifest, string>: ok; name, version; row layout revision 1; no reader schema, no key schema, wants nothing; one
  ;; output; stateless.
  (data (i32.const 64)
    "\00\00\00\00" "\10\00\00\00\08\00\00\00" "\18\00\00\00\05\00\00\00" "\01\00\00\00"
    "\00\00\00\00\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00" "\00\00\00\00"
    "\80\00\00\00\01\00\00\00" "\01\00\00\00")
  ;; output-decl: name, format `same`, no key schema.
  (data (i32.const 128) "\20\00\00\00\03\00\00\00")
  ;; At 192 there are zeros for ever: every other `ok`. At 224 `emit` puts its answer, which the host knows anyway.

  (func $alloc (param $align i32) (param $size i32) (result i32)
    (local $at i32) (local $end i32)
    (local.set $at
      (i32.and
        (i32.add (global.get $free) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
    (local.set $end (i32.add (local.get $at) (local.get $size)))
    (if (i32.lt_u (local.get $end) (local.get $at)) (then unreachable))
    (if (i32.gt_u (local.get $end) (i32.shl (memory.size) (i32.const 16)))
      (then
        (if (i32.eq
              (memory.grow
                (i32.add
                  (i32.shr_u (i32.sub (local.get $end) (i32.shl (memory.size) (i32.const 16))) (i32.const 16))
                  (i32.const 1)))
              (i32.const -1))
          (then unreachable))))
    (global.set $free (local.get $end))
    (local.get $at))

  (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (call $alloc (local.get $align) (local.get $size)))
    (memory.copy (local.get $at) (local.get $old)
      (select (local.get $old_size) (local.get $size) (i32.lt_u (local.get $old_size) (local.get $size))))
    (local.get $at))

  (func (export "kiteline:transform/transform@0.1.0#describe") (param i32 i32 i32 i32 i32) (result i32)
    (global.set $free (i32.const 1024))
    (i32.const 64))

  (func (export "kiteline:transform/transform@0.1.0#open") (param i32) (result i32)
    (global.set $free (i32.const 1024))
    (i32.const 192))

  ;; One entry a row: 32 bytes of header, then 16 bytes each with the row's number, kind 0, port 0 and nothing else.
  (func (export "kiteline:transform/transform@0.1.0#process") (param $batch i32) (param $size i32) (result i32)
    (local $rows i32) (local $row i32) (local $out i32) (local $bytes i32) (local $at i32)
    (local.set $rows (i32.load offset=4 align=1 (local.get $batch)))
    (local.set $bytes (i32.add (i32.const 32) (i32.shl (local.get $rows) (i32.const 4))))
    (local.set $out (call $alloc (i32.const 8) (local.get $bytes)))
    (memory.fill (local.get $out) (i32.const 0) (local.get $bytes))
    (i32.store (local.get $out) (i32.const 0x314f4c4b))
    (i32.store offset=4 (local.get $out) (local.get $rows))
    (i32.store offset=16 (local.get $out) (local.get $bytes))
    (local.set $at (i32.add (local.get $out) (i32.const 32)))
    (block $done
      (loop $next
        (br_if $done (i32.eq (local.get $row) (local.get $rows)))
        (i32.store (local.get $at) (local.get $row))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $next)))
    (call $emit (local.get $out) (local.get $bytes) (i32.const 224))
    (global.set $free (i32.const 1024))
    (i32.const 192))

  (func (export "kiteline:transform/transform@0.1.0#flush") (result i32)
    (i32.const 192)))
