/** The slot of a key in a cluster: the CRC-16 (XMODEM) of its hash tag, if it has one, modulo 16384. */
export function slotOf(key: string): number {
  const bytes = Buffer.from(key);
  const open = bytes.indexOf("{");
  const close = open < 0 ? -1 : bytes.indexOf("}", open + 1);
  let crc = 0;
  for (const byte of close > open + 1 ? bytes.subarray(open + 1, close) : bytes) {
    crc ^= byte << 8;
    for (let i = 0; i < 8; i++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return crc & 0x3fff;
}

/** The key of the lock under which a value is made: in the slot of the value. */
export function lockOf(key: string): string {
  return /^[^{]*\{[^}]+\}/.test(key) ? `${key}:once` : `{${key}}:once`;
}

const tags = new Map<number, string>();
let tried = 0;

/** A short hash tag of this slot. Not every key can be one itself: a tag ends at the first brace. */
export function tagOfSlot(slot: number): string {
  while (!tags.has(slot)) {
    const tag = (tried++).toString(36);
    const found = slotOf(tag);
    if (!tags.has(found)) tags.set(found, tag);
  }
  return tags.get(slot)!;
}
