// An application that sells: no two sales of one article at the same time, in all its processes.
import "reflect-metadata";
import { Inject, Injectable, Module, SetMetadata } from "@nestjs/common";
import { NestFactory, Reflector } from "@nestjs/core";
import { Redis } from "ioredis";
import { Redlock } from "redis-lock-client";
import { Locked, RedlockModule } from "./redlock.module.js";

@Injectable()
export class StockService {
  private inside = 0;
  most = 0;

  constructor(@Inject(Redlock) readonly redlock: Redlock) {}

  // Metadata as that of `@Cron` or `@Get`, which may stand on either side.
  @SetMetadata("above", true)
  @Locked((article: string) => `stock:${article}`, 5000, { retryCount: -1 })
  @SetMetadata("below", true)
  async sell(_article: string): Promise<number> {
    this.most = Math.max(this.most, ++this.inside);
    await new Promise((resolve) => setTimeout(resolve, 5));
    return this.inside--;
  }
}

@Module({
  imports: [
    RedlockModule.forRoot({
      useFactory: () =>
        new Redis(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379", { commandTimeout: 2000 }),
      settings: { waitBy: "notify" },
    }),
  ],
  providers: [StockService],
})
export class AppModule {}

const app = await NestFactory.createApplicationContext(AppModule, { logger: ["error", "warn"] });
app.enableShutdownHooks();
const stock = app.get(StockService);
await Promise.all(Array.from({ length: 20 }, () => stock.sell("7")));
const reflector = app.get(Reflector);
const found = {
  most: stock.most,
  metadata: ["above", "below"].filter((key) => reflector.get(key, stock.sell)),
  name: stock.sell.name,
};
console.log(JSON.stringify(found));
await app.close();
