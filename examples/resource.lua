-- Stands for the thing that a lock protects: a database row that remembers the largest fence that ever wrote to it.
-- In SQL it is one statement: UPDATE stock SET writes = writes + 1, fence = :fence WHERE id = :id AND fence <= :fence
--
--   EVAL resource.lua 1 RESOURCE FENCE TOKEN -> 1 written; 0 refused, for a newer fence has written
--
-- RESOURCE is a hash {fence, writes}; RESOURCE:log tells who wrote, and who was refused, in order.
local fence = tonumber(ARGV[1])
local largest = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if fence < largest then
    redis.call('RPUSH', KEYS[1] .. ':log', 'refused ' .. ARGV[1] .. ' ' .. ARGV[2])
    return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1])
redis.call('HINCRBY', KEYS[1], 'writes', 1)
redis.call('RPUSH', KEYS[1] .. ':log', 'wrote ' .. ARGV[1] .. ' ' .. ARGV[2])
return 1
