// Nicknames of players. Events know players by number alone, and people remember words. A number always has the same
// nickname, and 4,096 players with consecutive numbers all have different ones.

const FIRST = ("Amber Arctic Azure Bold Brave Brisk Bronze Calm Clever Cobalt Copper Coral Cosmic Crimson Daring " +
  "Dusty " +
  "Eager Ember Fabled Fearless Fierce Foxy Frosty Gentle Ghostly Gilded Golden Grand Hasty Hidden Humble Iron Ivory " +
  "Jade Jolly Keen Kind Lively Lone Lucky Lunar Merry Mighty Misty Noble Nimble Olive Onyx Patient Proud Quick Quiet " +
  "Royal Ruby Rusty Scarlet Shadow Silent Silver Sly Solar Stormy Swift Wild").split(" ");
const SECOND = ("Badger Bear Beaver Bison Boar Cobra Condor Cougar Coyote Crane Crow Deer Dingo Dolphin Dragon Eagle " +
  "Elk Falcon Ferret Finch Fox Gecko Goose Hare Hawk Heron Hornet Horse Husky Ibex Jackal Jaguar Kestrel Kite Koala " +
  "Lemur Leopard Lion Lizard Lynx Magpie Marten Mole Moose Newt Otter Owl Panda Panther Parrot Puma Rabbit Raven " +
  "Robin Salmon Seal Shark Sparrow Stork Swan Tiger Viper Wasp Wolf").split(" ");

const NAMES = FIRST.length * SECOND.length;

// An odd factor, so that neighbours differ in both words.
const SPREAD = 1597;

export function nameOf(id) {
  const number = (Number(id.slice(-9)) % NAMES) * SPREAD % NAMES;
  return `${FIRST[Math.floor(number / SECOND.length)]} ${SECOND[number % SECOND.length]}`;
}
