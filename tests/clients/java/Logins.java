import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Kafka's own Java client logs in by SASL, writes a record and reads it back.
 * Arguments: bootstrap, topic, seconds to stay, then mechanism user password, again and again.
 * A mechanism may end in "+tokenauth": user and password are a delegation token's id and HMAC. Of OAUTHBEARER the
 * password is the URL of a file with a token; "": it makes one itself, without a signature.
 * Prints "mechanism user ok", or the class and the message of what went wrong.
 */
public class Logins {
    public static void main(String[] args) throws Exception {
        for (int at = 3; at < args.length; at += 3) {
            String told;
            try {
                told = attempt(args[0], args[1], Integer.parseInt(args[2]), args[at], args[at + 1], args[at + 2]);
            } catch (ExecutionException error) {
                told = of(error.getCause());
            } catch (RuntimeException error) {
                told = of(error);
            }
            System.out.println(args[at] + " " + args[at + 1] + " " + told);
        }
    }

    static String of(Throwable error) {
        return error.getClass().getSimpleName() + ": " + error.getMessage();
    }

    static Map<String, Object> config(String bootstrap, String mechanism, String user, String password) {
        boolean byToken = mechanism.endsWith("+tokenauth");
        mechanism = mechanism.replace("+tokenauth", "");
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String options = " username=\"" + user + "\" password=\"" + password + "\"";
        if (byToken) options += " tokenauth=\"true\"";
        Map<String, Object> config = new HashMap<>();
        if (mechanism.equals("OAUTHBEARER")) {
            module = "oauthbearer.OAuthBearerLoginModule";
            options = "";
            if (password.isEmpty()) {
                options = " unsecuredLoginStringClaim_sub=\"" + user + "\"";
            } else {
                System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", password);
                config.put("sasl.oauthbearer.token.endpoint.url", password);
                config.put("sasl.login.callback.handler.class",
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler");
            }
        }
        config.put("bootstrap.servers", bootstrap);
        config.put("security.protocol", "SASL_PLAINTEXT");
        config.put("sasl.mechanism", mechanism);
        config.put("sasl.jaas.config", "org.apache.kafka.common.security." + module
            + " required" + options + ";");
        config.put("max.block.ms", 20000);
        return config;
    }

    /** Stays on its connections for a while, so that sessions end meanwhile. */
    static String attempt(String bootstrap, String topic, int seconds, String mechanism, String user, String password)
            throws Exception {
        Map<String, Object> config = config(bootstrap, mechanism, user, password);
        long until = System.currentTimeMillis() + seconds * 1000L;
        int sent = 0;
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
             var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            var first = producer.send(new ProducerRecord<>(topic, 0, user, mechanism)).get();
            var partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, first.offset());
            int read = 0;
            sent = 1;
            do {
                if (sent == read) {
                    producer.send(new ProducerRecord<>(topic, 0, user, mechanism)).get();
                    sent++;
                }
                for (var record : consumer.poll(Duration.ofSeconds(5))) {
                    if (record.key().equals(user) && record.value().equals(mechanism)) read++;
                }
            } while (read < sent || System.currentTimeMillis() < until);
            double failed = 0;
            for (var metric : producer.metrics().values()) {
                if (metric.metricName().name().equals("failed-authentication-total")) {
                    failed += ((Number) metric.metricValue()).doubleValue();
                }
            }
            return failed == 0 ? "ok" : "failed " + failed;
        }
    }
}
