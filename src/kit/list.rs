//! Closed lists: enums whose values have a number and a public name.

#[macro_export]
macro_rules! list {
    (
        $(#[$doc:meta])*
        $type:ident { $($(#[$of:meta])* $variant:ident = $number:literal $name:literal,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $type {
            $($(#[$of])* $variant = $number,)*
        }

        impl $type {
            /// All values, by number.
            pub const ALL: &[$type] = &[$($type::$variant,)*];

            /// The names, by number.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// The value with this number.
            pub fn from_code(code: u8) -> Option<$type> {
                $type::ALL.get(usize::from(code)).copied()
            }

            /// The name in updates and metrics.
            pub fn name(self) -> &'static str {
                $type::NAMES[self as usize]
            }
        }

        impl $crate::kit::packed::Packed for $type {
            const NAMES: &'static [&'static str] = $type::NAMES;
            const MOST: u64 = $type::ALL.len() as u64 - 1;

            fn to_bits(self) -> u64 {
                self as u64
            }

            fn from_bits(bits: u64) -> Option<$type> {
                $type::from_code(u8::try_from(bits).ok()?)
            }
        }

        const _: () = {
            let mut at = 0;
            while at < $type::ALL.len() {
                assert!($type::ALL[at] as usize == at);
                at += 1;
            }
        };
    };
}
