//! Closed lists: enums whose every value has a number and a name that others see.

macro_rules! names {
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
            /// Every one, in the order of the numbers.
            pub(crate) const ALL: &[$type] = &[$($type::$variant,)*];

            /// The names, in the order of the numbers.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// The one with this number.
            pub(crate) fn from_code(code: u8) -> Option<$type> {
                $type::ALL.get(usize::from(code)).copied()
            }

            /// Its name in updates and metrics.
            pub fn name(self) -> &'static str {
                $type::NAMES[self as usize]
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
