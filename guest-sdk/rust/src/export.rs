//! `export!`: makes a plugin of a transform.

/// Exports a type that implements [`Transform`](crate::Transform) as the plugin's one transform. Natively it only
/// checks the type, so that the same crate runs its tests without a sandbox.
#[macro_export]
macro_rules! export {
    ($transform:ty) => {
        #[cfg(not(target_family = "wasm"))]
        const _: () = {
            const fn is_transform<T: $crate::Transform>() {}
            is_transform::<$transform>()
        };
        #[cfg(target_family = "wasm")]
        const _: () = {
            use $crate::__rt::{Cell, bindings, guest};
            ::std::thread_local! {
                static RUNNING: Cell<$transform> = const { Cell::new(None) };
            }
            struct KitelinePlugin;
            impl guest::Guest for KitelinePlugin {
                fn describe(
                    config: ::std::vec::Vec<(::std::string::String, ::std::string::String)>,
                    source_schema: ::std::option::Option<::std::string::String>,
                ) -> ::std::result::Result<guest::Manifest, ::std::string::String> {
                    $crate::__rt::describe::<$transform>(config, source_schema)
                }
                fn open(context: guest::OpenContext) -> ::std::result::Result<(), ::std::string::String> {
                    $crate::__rt::open(&RUNNING, context)
                }
                fn process(batch: ::std::vec::Vec<u8>) -> ::std::result::Result<(), guest::Fault> {
                    $crate::__rt::process(&RUNNING, batch)
                }
                fn flush() -> ::std::result::Result<(), ::std::string::String> {
                    $crate::__rt::flush(&RUNNING)
                }
            }
    $crate::__rt::export_rows!(KitelinePlugin with_types_in $crate::__rt::bindings);
        };
    };
}
