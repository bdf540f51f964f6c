/** What is free on the fake GPU, while others hold a part of it. */
import { expect, it } from 'vitest';
import { freeDeviceBytes } from '../../../runtime/cuda/memoryUse.js';
import { describeFake } from '../../support/fakeCuda/fakeDriver.js';

describeFake('the memory of a device that is free', (fake) => {
  it('is less what others hold, and nothing is left open', () => {
    const { addon } = fake;
    const before = freeDeviceBytes(addon, [0]);
    const device = new addon.Device(0);
    const held = new addon.Memory(device, 1 << 24);
    expect(freeDeviceBytes(addon, [0])).toBe(Math.max(0, before - (1 << 24)));
    held.release();
    device.release();
    expect(freeDeviceBytes(addon, [0])).toBe(before);
    expect(fake.live()).toBe(0);
  });
});
